"""Plans weighed on recorded grids: `backtest` on the user's data, `evaluate` on data that anybody has."""

from carbontui.hooks import Extension, ExtensionCommand

HERE = "carbontui.extensions.evaluation"
EXTENSION = Extension(
    "evaluation",
    commands=(
        ExtensionCommand("backtest", "What plans would have saved on recorded grid data.", f"{HERE}.commands:backtest"),
        ExtensionCommand(
            "evaluate", "Benchmark the planner against simple rules on recorded grids.", f"{HERE}.commands:evaluate"
        ),
    ),
)
