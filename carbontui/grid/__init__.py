"""Carbon intensity and prices: providers, cleaning, forecast, typical days, cache."""
