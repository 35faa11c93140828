"""Transactions in an agent: requests of transactional producers on their way to apply."""
