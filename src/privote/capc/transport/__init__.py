"""Roles between machines: certificates, gRPC streams with mutual TLS, and what drives a role."""
