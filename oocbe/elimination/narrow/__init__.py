"""Problems of very many variables and small tables, eliminated in one compiled loop."""
