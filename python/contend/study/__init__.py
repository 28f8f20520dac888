"""Studies: published experiments, simulated and compared (docs/studies.md; how: docs/internals/studies.md).

    study files -> Study -> list of runs -> readings -> rows -> effects -> summary -> text, JSON, frames, picture

`load` reads and checks the files, `plan` lists the runs, `simulate` runs them, `judge` knows published and simulated
numbers only. Nothing before `reproduce` looks at a published value but for its place (`x`), and `judge` starts no run.
"""
