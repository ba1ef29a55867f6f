"""Errors of `mosq pub` and `mosq sub`, with the exit statuses of Mosquitto's clients: those of libmosquitto, and for a
login that the broker refuses the code of its CONNACK."""

EXIT_OK, EXIT_FAILED = 0, 1
EXIT_LOST, EXIT_TLS, EXIT_TIMED_OUT = 7, 8, 27

# CONNACK of MQTT 3.1 and 3.1.1: paho reports the code of MQTT 5 that means the same
CODE_OF_3X = {132: 1, 133: 2, 136: 3, 134: 4, 135: 5}
TEXT_OF_3X = {1: "unacceptable protocol version", 2: "identifier rejected", 3: "broker unavailable",
              4: "bad user name or password", 5: "not authorised"}
BAD_LOGIN, NOT_AUTHORIZED = 134, 135


class ClientError(Exception):
    """The command ends here; the text says why and what to do."""

    def __init__(self, text: str, status: int = EXIT_FAILED) -> None:
        super().__init__(text)
        self.status = status


def refused(code: int, name: str, level: int, has_user: bool) -> ClientError:
    """Return the error for a CONNACK with a reason code of MQTT 5; its text begins with Mosquitto's words."""
    advice = ""
    if code == NOT_AUTHORIZED and not has_user:
        advice = " Does the broker want a user name and a password? Give -u USER -P PASSWORD."
    elif code in (BAD_LOGIN, NOT_AUTHORIZED):
        advice = " Check the user name and the password (-u, -P)."
    if level >= 5:
        return ClientError(f"Connection error: {name}.{advice}", code)
    old = CODE_OF_3X.get(code, 5)
    return ClientError(f"Connection error: Connection Refused: {TEXT_OF_3X[old]}.{advice}", old)
