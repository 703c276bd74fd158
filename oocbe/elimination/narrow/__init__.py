"""Problems whose messages are all small, eliminated in one compiled loop."""
