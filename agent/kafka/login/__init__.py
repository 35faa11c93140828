"""Who a connection's client is, by SASL."""
