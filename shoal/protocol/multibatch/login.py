"""Log in on a new connection with the operator's credentials: SaslHandshake v1, then SaslAuthenticate."""

from shoal.protocol.multibatch.dialogue import Dialogue, Talk, unproven
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.error_codes import error_name
from shoal.protocol.wire.sasl import Credentials, tokens

__all__ = ["login"]

_HANDSHAKE = Walkers(MESSAGES["SaslHandshakeResponse"], ("ErrorCode",), Rows("Mechanisms", ("*",)))
_AUTHENTICATE = Walkers(
    MESSAGES["SaslAuthenticateResponse"], ("ErrorCode", "ErrorMessage", "start AuthBytes", "end AuthBytes")
)


def login(credentials: Credentials, nonce: str) -> Talk[None]:
    """Raises DialogueEnded with the broker's message if it refuses the user, and RemoteProtocolError."""
    dialogue = Dialogue()
    yield from dialogue.learn_versions()
    yield from _handshake(dialogue, credentials.mechanism)
    exchange = tokens(credentials, nonce)
    token = next(exchange)
    while True:
        answer = yield from _authenticate(dialogue, token)
        try:
            token = exchange.send(answer)
        except StopIteration:
            return


def _handshake(dialogue: Dialogue, mechanism: str) -> Talk[None]:
    key = ApiKey.SASL_HANDSHAKE
    frame, version = yield from dialogue.ask(key, {"Mechanism": mechanism})
    error_code, mechanisms = _HANDSHAKE[version](frame, response_body(frame, key, version), len(frame))
    if error_code:
        offered = ", ".join(name for (name,) in mechanisms) or "no SASL on this port"
        raise unproven(f"the broker does not take SASL {mechanism} here: {error_name(error_code)}; it offers {offered}")


def _authenticate(dialogue: Dialogue, token: bytes) -> Talk[bytes]:
    key = ApiKey.SASL_AUTHENTICATE
    frame, version = yield from dialogue.ask(key, {"AuthBytes": token})
    error_code, text, start, end = _AUTHENTICATE[version](frame, response_body(frame, key, version), len(frame))
    if error_code:
        raise unproven(f"the broker does not let the user in: {error_name(error_code)}: {text or 'no reason given'}")
    return bytes(frame[start:end])
