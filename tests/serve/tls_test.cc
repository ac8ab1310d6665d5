// HTTP over TLS, with certificates made by the openssl program.
#include "serve/http/tls.h"

#include <malloc.h>
#include <openssl/ssl.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "support/http_case.h"
#include "support/temp_dir.h"

namespace weft::serve {
namespace {

// A TLS client with its own connection.
class TlsClient {
  public:
    TlsClient(int port, int most_version = TLS1_3_VERSION, const char* protocols = nullptr)
        : raw_(port), context_(SSL_CTX_new(TLS_client_method())), ssl_(SSL_new(context_)) {
        timeval patience{test::kAnswerMs / 1000, 0};
        ::setsockopt(raw_.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        SSL_set_max_proto_version(ssl_, most_version);
        if (most_version < TLS1_2_VERSION) SSL_set_security_level(ssl_, 0);
        if (protocols != nullptr) {
            SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(protocols),
                                static_cast<unsigned>(std::string_view(protocols).size()));
        }
        SSL_set_fd(ssl_, raw_.fd());
        connected_ = SSL_connect(ssl_) == 1;
    }
    TlsClient(const TlsClient&) = delete;
    TlsClient& operator=(const TlsClient&) = delete;
    ~TlsClient() {
        SSL_free(ssl_);
        SSL_CTX_free(context_);
    }

    bool connected() const { return connected_; }
    RawClient& raw() { return raw_; }
    std::string version() const { return SSL_get_version(ssl_); }
    std::string protocol() const {
        const unsigned char* name = nullptr;
        unsigned size = 0;
        SSL_get0_alpn_selected(ssl_, &name, &size);
        return {reinterpret_cast<const char*>(name), size};
    }
    std::string Subject() const {
        X509* peer = SSL_get_peer_certificate(ssl_);
        char text[256] = "";
        X509_NAME_oneline(X509_get_subject_name(peer), text, sizeof text);
        X509_free(peer);
        return text;
    }
    void Send(const std::string& bytes) {
        EXPECT_GT(SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())), 0);
    }
    // Reads until `end`; returns everything.
    std::string ReadUntil(const std::string& end) {
        std::string text;
        char buffer[16384];
        while (text.find(end) == text.npos) {
            const int got = SSL_read(ssl_, buffer, sizeof buffer);
            if (got <= 0) break;
            text.append(buffer, static_cast<size_t>(got));
        }
        return text;
    }

  private:
    RawClient raw_;
    SSL_CTX* context_;
    SSL* ssl_;
    bool connected_ = false;
};

class Tls : public HttpCase {
  protected:
    static void SetUpTestSuite() { std::signal(SIGPIPE, SIG_DFL); }
    void SetUp() override {
        if (std::system("command -v openssl >/dev/null 2>&1") != 0) {
            GTEST_SKIP() << "NOT TESTED: the openssl program, which makes certificates, is missing";
        }
        Make("one");
    }
    void Make(const std::string& name) {
        const std::string command =
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
            "-subj /CN=" +
            name + " -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout " + Key(name) +
            " -out " + Cert(name) + " 2>/dev/null";
        ASSERT_EQ(std::system(command.c_str()), 0);
    }
    std::string Cert(const std::string& name) const { return folder_ / (name + ".pem"); }
    std::string Key(const std::string& name) const { return folder_ / (name + ".key"); }
    void StartTls(HttpLimits limits = {}) {
        Start({.tls_cert = Cert("one"), .tls_key = Key("one"), .limits = limits});
    }

    test::TempDir folder_;
};

TEST_F(Tls, ServesBothVersions) {
    StartTls();
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
        TlsClient client(server_->port(), version, "\x02h2\x08http/1.1");
        ASSERT_TRUE(client.connected());
        EXPECT_EQ(client.version(), version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
        EXPECT_EQ(client.protocol(), "http/1.1");
        for (int i = 0; i < 2; ++i) {
            client.Send(Post("/echo", "secret"));
            EXPECT_NE(client.ReadUntil("POST /echo  secret").find("200 OK"), std::string::npos);
            client.Send(Get("/stream"));
            EXPECT_NE(client.ReadUntil("\r\n0\r\n\r\n").find("three"), std::string::npos);
        }
    }
    EXPECT_EQ(server_->url().rfind("https://127.0.0.1:", 0), 0u);
}

TEST_F(Tls, LargeBodiesBothWays) {
    StartTls();
    TlsClient client(server_->port());
    ASSERT_TRUE(client.connected());
    client.Send(Post("/echo", std::string(3'000'000, 'y') + "END"));
    const std::string text = client.ReadUntil("END");
    const size_t body = text.find("\r\n\r\n");
    ASSERT_NE(body, std::string::npos);
    EXPECT_EQ(text.substr(body + 4), "POST /echo  " + std::string(3'000'000, 'y') + "END");
}

TEST_F(Tls, RefusesOldVersionsAndOtherProtocols) {
    StartTls();
    EXPECT_FALSE(TlsClient(server_->port(), TLS1_1_VERSION).connected());
    EXPECT_FALSE(TlsClient(server_->port(), TLS1_3_VERSION, "\x02h2").connected());
    EXPECT_TRUE(Until([&] { return server_->stats().tls_failed == 2; }));
    EXPECT_TRUE(TlsClient(server_->port()).connected());
}

TEST_F(Tls, PlainHttpGetsAnError) {
    StartTls();
    RawClient client = Connect();
    const RawAnswer answer = client.Ask(Get("/echo"));
    EXPECT_EQ(answer.status, 400);
    EXPECT_NE(answer.Error().find("https://"), std::string::npos) << answer.body;
    EXPECT_TRUE(client.ReadToEnd());
    EXPECT_EQ(server_->stats().requests, 0u);
}

TEST_F(Tls, StalledHandshakesAreClosed) {
    StartTls({.head_ms = 150});
    RawClient silent = Connect(), half = Connect();
    half.Send(std::string("\x16\x03\x01\x02\x00\x01\x00", 7));
    EXPECT_TRUE(silent.ReadToEnd());
    EXPECT_TRUE(half.ReadToEnd());
    EXPECT_EQ(server_->stats().timed_out, 2u);
    EXPECT_TRUE(TlsClient(server_->port()).connected());
}

TEST_F(Tls, AClientThatLeavesIsNoticedAtOnce) {
    StartTls();
    for (const bool reset : {false, true}) {
        TlsClient client(server_->port());
        client.Send(Get("/hold"));
        const auto exchange = TakeHeld();
        ASSERT_NE(exchange, nullptr);
        exchange->Begin(200, {});
        std::atomic<bool> gone{false};
        exchange->OnDisconnect([&] { gone = true; });
        reset ? client.raw().Reset() : client.raw().Close();
        EXPECT_TRUE(Until([&] { return gone.load(); }, 500));
        exchange->Write("nobody's");  // must not raise SIGPIPE
    }
}

TEST_F(Tls, AReaderOfAStreamThatStopsIsCutOff) {
    StartTls({.stall_ms = 200});
    TlsClient client(server_->port());
    client.Send(Get("/hold"));
    const auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    exchange->Begin(200, {});
    // More than any socket buffer.
    for (int i = 0; i < 40; ++i) exchange->Write(std::string(400'000, 'c'));
    EXPECT_TRUE(Until([&] { return exchange->gone(); }));
    EXPECT_EQ(server_->stats().cut_off, 1u);
}

TEST_F(Tls, CertificatesAreReloadedAndBadOnesRefused) {
    StartTls();
    EXPECT_EQ(TlsClient(server_->port()).Subject(), "/CN=one");
    TlsClient before(server_->port());
    Make("two");
    std::filesystem::copy_file(Cert("two"), Cert("one"),
                               std::filesystem::copy_options::overwrite_existing);
    const Status mixed = server_->ReloadTls();  // the key still belongs to the old certificate
    ASSERT_FALSE(mixed.ok());
    EXPECT_NE(mixed.error().message.find("--tls-key"), std::string::npos);
    EXPECT_EQ(TlsClient(server_->port()).Subject(), "/CN=one");
    std::filesystem::copy_file(Key("two"), Key("one"),
                               std::filesystem::copy_options::overwrite_existing);
    EXPECT_TRUE(server_->ReloadTls().ok());
    EXPECT_EQ(TlsClient(server_->port()).Subject(), "/CN=two");
    before.Send(Get("/echo"));  // a connection keeps its certificate
    EXPECT_NE(before.ReadUntil("GET /echo").find("200 OK"), std::string::npos);

    std::ofstream(folder_ / "bad.pem") << "no certificate";
    EXPECT_FALSE(TlsContext::Load(folder_ / "bad.pem", Key("one")).ok());
    EXPECT_FALSE(TlsContext::Load(folder_ / "none.pem", Key("one")).ok());
    EXPECT_FALSE(TlsContext::Load(Cert("one"), folder_ / "bad.pem").ok());
}

TEST_F(Tls, IdleConnectionsCostLittle) {
    StartTls();
    constexpr size_t kConnections = 200;
    std::vector<std::unique_ptr<TlsClient>> clients;
    const auto resident = [] {
        std::ifstream file("/proc/self/statm");
        size_t total = 0, pages = 0;
        file >> total >> pages;
        return pages * 4096;
    };
    TlsClient first(server_->port());
    ::malloc_trim(0);
    const size_t before = resident();
    for (size_t i = 0; i < kConnections; ++i) {
        clients.push_back(std::make_unique<TlsClient>(server_->port()));
        clients.back()->Send(Get("/echo"));
        clients.back()->ReadUntil("GET /echo");
    }
    // memory freed by earlier tests may be reused
    const size_t after = std::max(before, resident());
    const size_t bytes = (after - before) / kConnections;
    std::printf("an idle connection of TLS, both ends: %.1f KB\n",
                static_cast<double>(bytes) * 1e-3);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    EXPECT_LE(bytes, 120'000u);
#endif
}

}  // namespace
}  // namespace weft::serve
