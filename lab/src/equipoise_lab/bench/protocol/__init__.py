"""A deterministic simulation of the commit protocol: the real code over simulated stores, drivers and time.

Real are the engine, the log, fencing, garbage collection, compaction, handover of state, and the sinks ``parquet`` and
``table``. Simulated are the store, Spark (its offsets and the call of each batch), the user's code, and the clock. One
seed is one schedule; the same seed gives the same trace, byte for byte.

| module | contents |
|---|---|
| ``schedule`` | what a seed stands for: the workload, and the faults by step |
| ``actors`` | threads of which exactly one runs; a step is one operation on the store or one failpoint |
| ``files``, ``store`` | a model of each kind of store, with power cuts |
| ``spark_half`` | Spark's part: offsets, commits, rows of a batch |
| ``tasks`` | the tasks of a batch, with repeated and late attempts |
| ``lost_half`` | checkpoints whose halves are of different times |
| ``world`` | drivers, compactions, operators; runs a schedule |
| ``checker`` | compares the end with a model of a few lines |
| ``story`` | shrinks a failing schedule and prints it |
"""
