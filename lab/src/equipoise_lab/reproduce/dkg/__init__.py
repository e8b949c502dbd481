"""Dalabasmaz and Can, Dynamic Key Grouping."""
