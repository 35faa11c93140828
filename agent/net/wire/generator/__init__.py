"""Turns the message definitions of agent/net/wire/messages/ into agent/net/wire/generated/."""
