"""Turns the message definitions of agent/wire/messages/ into agent/wire/generated/."""
