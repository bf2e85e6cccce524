"""`submit` has Slurm start a job in clean hours; `fleet` moves the starts of such jobs within a power budget."""

from carbontui.hooks import Extension, ExtensionCommand

HERE = "carbontui.extensions.fleet.commands"
EXTENSION = Extension(
    "fleet",
    commands=(
        ExtensionCommand("submit", "Submit a Slurm script to start in clean hours.", f"{HERE}:submit"),
        ExtensionCommand("fleet", "Start a cluster's jobs in clean hours, within a power budget.", f"{HERE}:fleet"),
    ),
)
