"""The project's own rules, checked: one module per rule, each with `check(root) -> list[Finding]`."""
