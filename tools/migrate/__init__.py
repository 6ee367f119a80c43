"Measured tables of version 0.1.0, a wide csv file a paper, as one long table: `python -m tools.migrate OLD_FOLDER`."
