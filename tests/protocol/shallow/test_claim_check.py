from dataclasses import replace

from hypothesis import given

from shoal.protocol.shallow.envelope import EnvelopeKey, decode_key, encode_key
from tests.protocol.shallow.strategies import envelope_keys

CHECKS = envelope_keys().map(lambda key: replace(key, is_claim_check=True))


@given(CHECKS)
def test_an_envelope_and_its_claim_check_are_two(check: EnvelopeKey) -> None:
    envelope = replace(check, is_claim_check=False)
    assert encode_key(envelope) != encode_key(check)
    assert decode_key(encode_key(check)) == check
    assert (envelope.carried, check.carried) == (check.payload, 0)
