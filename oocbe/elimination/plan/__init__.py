"""What a solve is predicted to take, before anything is computed."""
