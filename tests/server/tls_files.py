"""Certificates for tests: signed by themselves, for loopback names, made in milliseconds."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make(directory: Path, name: str = "one") -> tuple[Path, Path]:
    """(certificate, key) for localhost and 127.0.0.1, whose subject is the name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2)).add_extension(x509.SubjectAlternativeName(names), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True).sign(key, hashes.SHA256()))
    return _written(directory, name, certificate, key)


def signed(directory: Path, authority: tuple[Path, Path], name: str = "client") -> tuple[Path, Path]:
    """(certificate, key) of a client, which the authority has signed; `make` makes authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    ca = x509.load_pem_x509_certificate(authority[0].read_bytes())
    ca_key = serialization.load_pem_private_key(authority[1].read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(ca.subject).public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True).sign(ca_key, hashes.SHA256()))
    return _written(directory, name, certificate, key)


def _written(directory: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
             ) -> tuple[Path, Path]:
    paths = directory / f"{name}.crt", directory / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                           serialization.NoEncryption()))
    paths[1].chmod(0o600)
    return paths


def trusting(certificate: Path, shows: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """A client's context that trusts this certificate and no other.  shows: the client's certificate and key."""
    context = ssl.create_default_context(cafile=certificate)
    if shows is not None:
        context.load_cert_chain(*shows)
    return context
