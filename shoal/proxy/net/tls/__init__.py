"""TLS to clients and to brokers: Python's `ssl` (OpenSSL) does the cryptography.

    settings -> contexts      files -> an ssl.SSLContext that a reload can replace
                 pem          certificates and keys of a file; what is wrong with it
                 certificates what logs and errors say of a certificate

                 shown        a client's certificate, also a refused one

    reload                    reads files again when they change; reports certificates that expire
    explain                   words for a handshake that failed
    look                      a second look at a broker, for the cause of a failure

    socket ──> handshake ──> transport    decrypts into the pumps' buffer, encrypts from their bytes

Every problem with a file is found at start, or when a reload reads it, and names the setting, the file, the cause and
the way out. `cryptography`, which loads slowly, is imported only where TLS is configured.
"""
