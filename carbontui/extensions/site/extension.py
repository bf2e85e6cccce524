"""One power budget for all jobs of a machine, and grid events that ask them for fewer watts."""

from carbontui.hooks import Extension, ExtensionCommand

HERE = "carbontui.extensions.site"
EXTENSION = Extension(
    "site",
    commands=(ExtensionCommand("site", "One power budget for all jobs here; grid events.", f"{HERE}.commands:site"),),
    exchange=f"{HERE}.ledger:SiteExchange",
    prices=f"{HERE}.shadow_prices:shadow",
)
