"""What a cluster costs a month: a pure model of requests, storage, cores and network, beside Apache Kafka."""

from agent.costs.bill import Row, Side
from agent.costs.load import Load, LoadError, Settings
from agent.costs.prices import Prices, PricesError, load_prices
from agent.costs.reckoning import Bill, reckoned

__all__ = [
    "Bill",
    "Load",
    "LoadError",
    "Prices",
    "PricesError",
    "Row",
    "Settings",
    "Side",
    "load_prices",
    "reckoned",
]
