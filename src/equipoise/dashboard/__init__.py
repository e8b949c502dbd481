"""The live page of a query, read from its checkpoint without Spark and without disturbing the query."""

from equipoise.dashboard.document import Snapshot
from equipoise.dashboard.page import grafana_dashboard
from equipoise.dashboard.server import DashboardServer
from equipoise.dashboard.watcher import Watcher

__all__ = ["DashboardServer", "Snapshot", "Watcher", "grafana_dashboard"]
