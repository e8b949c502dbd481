"""Keys, columns, schemas, routing, and rows as Arrow and pandas: the floor below batch, stream and prompt."""
