"""Where carbon intensity and price come from: providers, cleaning, forecast, typical days, cache."""
