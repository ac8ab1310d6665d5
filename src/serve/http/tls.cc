#include "serve/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

namespace weft::serve {
namespace {

// OpenSSL's latest error; clears the queue.
std::string Reason() {
    char text[256] = "unknown";
    const unsigned long code = ERR_peek_last_error();
    if (code != 0) ERR_error_string_n(code, text, sizeof text);
    ERR_clear_error();
    return text;
}

// ALPN: only HTTP/1.1 is supported. A client that offers only h2 gets an alert.
int ChooseProtocol(SSL*, const unsigned char** out, unsigned char* out_size,
                   const unsigned char* in, unsigned in_size, void*) {
    static constexpr unsigned char kOurs[] = "\x08http/1.1\x08http/1.0";
    unsigned char* chosen = nullptr;
    if (SSL_select_next_proto(&chosen, out_size, kOurs, sizeof kOurs - 1, in, in_size) !=
        OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

}  // namespace

Result<std::shared_ptr<const TlsContext>> TlsContext::Load(const std::string& cert,
                                                           const std::string& key) {
    SSL_CTX* context = SSL_CTX_new(TLS_server_method());
    if (context == nullptr)
        return MakeError(ErrorCode::kIo, "OpenSSL created no context: {}", Reason());
    const std::shared_ptr<const TlsContext> owner(new TlsContext(context));
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_options(
        context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 1);
    // A key with a password is an error, not a prompt on the terminal.
    SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return 0; });
    SSL_CTX_set_alpn_select_cb(context, ChooseProtocol, nullptr);
    if (SSL_CTX_use_certificate_chain_file(context, cert.c_str()) != 1) {
        return MakeError(ErrorCode::kUsage,
                         "--tls-cert {}: no certificate was read ({}); expected PEM with the "
                         "server's certificate first, then its chain",
                         cert, Reason());
    }
    if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1) {
        return MakeError(ErrorCode::kUsage,
                         "--tls-key {}: no private key for that certificate was read ({}); "
                         "expected PEM without a password",
                         key, Reason());
    }
    return owner;
}

TlsContext::~TlsContext() {
    SSL_CTX_free(context_);
}

TlsStream::TlsStream(const TlsContext& context, int fd) : ssl_(SSL_new(context.get())) {
    WEFT_CHECK(ssl_ != nullptr && SSL_set_fd(ssl_, fd) == 1);
    SSL_set_accept_state(ssl_);
}

TlsStream::~TlsStream() {
    SSL_free(ssl_);
}

TlsStep TlsStream::StepOf(int returned) {
    const int error = SSL_get_error(ssl_, returned);
    TlsStep step = TlsStep::kFailed;
    if (error == SSL_ERROR_WANT_READ) step = TlsStep::kWantRead;
    if (error == SSL_ERROR_WANT_WRITE) step = TlsStep::kWantWrite;
    if (error == SSL_ERROR_ZERO_RETURN) step = TlsStep::kClosed;
    if (error == SSL_ERROR_SSL && ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST) {
        step = TlsStep::kPlainHttp;
    }
    ERR_clear_error();
    return step;
}

TlsStep TlsStream::Handshake() {
    ERR_clear_error();
    const int returned = SSL_do_handshake(ssl_);
    return returned == 1 ? TlsStep::kDone : StepOf(returned);
}

TlsStep TlsStream::Read(std::span<char> out, size_t& got) {
    ERR_clear_error();
    const int returned = SSL_read_ex(ssl_, out.data(), out.size(), &got);
    return returned == 1 ? TlsStep::kDone : StepOf(returned);
}

TlsStep TlsStream::Write(std::string_view bytes, size_t& put) {
    ERR_clear_error();
    const int returned = SSL_write_ex(ssl_, bytes.data(), bytes.size(), &put);
    return returned == 1 ? TlsStep::kDone : StepOf(returned);
}

void TlsStream::Shutdown() {
    ERR_clear_error();
    if (SSL_is_init_finished(ssl_)) SSL_shutdown(ssl_);
    ERR_clear_error();
}

}  // namespace weft::serve
