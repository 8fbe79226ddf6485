"""Tables that users write, as rows of names and values: CSV and JSON, with the place of each row for messages."""
