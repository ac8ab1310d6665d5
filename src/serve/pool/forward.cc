#include "serve/pool/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

namespace weft::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Failure = boost::system::error_code;
using Socket = asio::ip::tcp::socket;

constexpr size_t kMostUnread = 256 << 10;
constexpr size_t kMostWhole = 1 << 20;  // longer answers are passed on as they arrive
constexpr size_t kMostError = 64 << 10;
constexpr auto kUnreadTurn = std::chrono::milliseconds(2);

// Headers that are not passed on: they describe one connection, or this process has checked them.
bool StaysHere(std::string_view name) {
    constexpr std::array kNames = {
        "host",           "connection", "keep-alive", "proxy-connection",  "te",
        "content-length", "trailer",    "upgrade",    "transfer-encoding", "expect",
        "x-request-id",   "origin",     "date",       "x-forwarded-for",   "request-id"};
    const auto starts = [&](std::string_view with) {
        return name.size() >= with.size() && SameName(name.substr(0, with.size()), with);
    };
    return starts("access-control-") || starts("sec-fetch-") ||
           std::ranges::any_of(kNames, [&](const char* one) { return SameName(name, one); });
}

std::string HeadOf(const HttpRequest& request, int port) {
    std::string head =
        fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n",
                    request.method == "HEAD" ? "GET" : request.method, request.target, port);
    for (const auto& [name, value] : request.headers) {
        if (!StaysHere(name)) head += fmt::format("{}: {}\r\n", name, value);
    }
    head += fmt::format("X-Request-Id: {}\r\nX-Forwarded-For: {}\r\nContent-Length: {}\r\n\r\n",
                        request.id, request.peer, request.body.size());
    return head;
}

std::string FetchHead(int port, const HttpRequest& asked, const std::string& target) {
    std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n",
                                   asked.method == "HEAD" ? "GET" : asked.method,
                                   target.empty() ? asked.target : target, port);
    for (const char* name : {"Authorization", "x-api-key"}) {
        const std::string_view value = asked.Header(name);
        if (!value.empty()) head += fmt::format("{}: {}\r\n", name, value);
    }
    return head + "\r\n";
}

// One response, read part by part.
class Reader {
  public:
    explicit Reader(Socket& socket) : socket_(socket) {
        parser_.body_limit(std::numeric_limits<uint64_t>::max());
        parser_.header_limit(64 << 10);
    }
    asio::awaitable<Failure> ReadHead() {
        Failure failure;
        co_await http::async_read_header(socket_, buffer_, parser_,
                                         asio::redirect_error(asio::use_awaitable, failure));
        co_return failure;
    }
    // Appends what arrives next to `out`.
    asio::awaitable<Failure> ReadPart(std::string& out) {
        Failure failure;
        parser_.get().body().data = room_.data();
        parser_.get().body().size = room_.size();
        co_await http::async_read_some(socket_, buffer_, parser_,
                                       asio::redirect_error(asio::use_awaitable, failure));
        if (failure == http::error::need_buffer) failure = {};
        out.append(room_.data(), room_.size() - parser_.get().body().size);
        co_return failure;
    }
    bool done() const { return parser_.is_done(); }
    // Whether only the end of a chunked answer remains, and has arrived.
    bool ends_here() const {
        constexpr std::string_view kEnd = "\r\n0\r\n\r\n";
        const auto left = buffer_.data();
        return std::string_view(static_cast<const char*>(left.data()), left.size()) == kEnd;
    }
    int status() { return static_cast<int>(parser_.get().result_int()); }
    bool has_length() { return parser_.get().has_content_length(); }
    uint64_t length() { return parser_.content_length().value_or(0); }
    Headers headers() {
        Headers out;
        for (const auto& field : parser_.get()) {
            const std::string name(field.name_string());
            if (!StaysHere(name)) out.emplace_back(name, std::string(field.value()));
        }
        return out;
    }

  private:
    Socket& socket_;
    boost::beast::flat_buffer buffer_;
    http::response_parser<http::buffer_body> parser_;
    std::vector<char> room_ = std::vector<char>(16 << 10);
};

asio::awaitable<void> WaitForReader(Exchange& exchange) {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    while (exchange.backlog_bytes() > kMostUnread && !exchange.gone()) {
        timer.expires_after(kUnreadTurn);
        co_await timer.async_wait(asio::use_awaitable);
    }
}

// Sends the rest of the answer as it arrives. (At the last bytes, many clients consider the answer
// complete, so the end that arrived with them is read before they are sent.)
asio::awaitable<Failure> PassOn(Reader& reader, Exchange& exchange,
                                const std::function<void()>& ends) {
    while (!reader.done()) {
        std::string part;
        Failure failure = co_await reader.ReadPart(part);
        if (!failure && reader.ends_here()) failure = co_await reader.ReadPart(part);
        if (reader.done()) ends();
        if (!part.empty()) exchange.Write(std::move(part));
        if (failure) co_return failure;
        co_await WaitForReader(exchange);
    }
    exchange.End();
    co_return Failure();
}

asio::awaitable<Failure> ReadWhole(Reader& reader, size_t most, std::string& body) {
    while (!reader.done() && body.size() < most) {
        const Failure failure = co_await reader.ReadPart(body);
        if (failure) co_return failure;
    }
    co_return Failure();
}

asio::awaitable<Failure> Connect(Socket& socket, int port, const std::string& head,
                                 const std::string& body) {
    Failure failure;
    const asio::ip::tcp::endpoint end(asio::ip::address_v4::loopback(),
                                      static_cast<unsigned short>(port));
    co_await socket.async_connect(end, asio::redirect_error(asio::use_awaitable, failure));
    if (failure) co_return failure;
    socket.set_option(asio::ip::tcp::no_delay(true), failure);
    const std::array<asio::const_buffer, 2> parts = {asio::buffer(head), asio::buffer(body)};
    co_await asio::async_write(socket, parts, asio::redirect_error(asio::use_awaitable, failure));
    // The server may refuse a request by its head, and not read the body.
    const bool refused =
        failure == asio::error::broken_pipe || failure == asio::error::connection_reset;
    co_return refused ? Failure() : failure;
}

// The answer to a stream that has begun with comments.
asio::awaitable<Failure> GoOn(Reader& reader, Exchange& exchange, StreamForm form,
                              const std::function<void()>& ends) {
    if (reader.status() == 200) co_return co_await PassOn(reader, exchange, ends);
    std::string body;
    const Failure failure = co_await ReadWhole(reader, kMostError, body);
    if (failure) co_return failure;
    ends();
    exchange.Write(ErrorEvent(form, body));
    exchange.End();
    co_return Failure();
}

// The whole answer if it is short, else a stream.
asio::awaitable<Failure> Relay(Reader& reader, Exchange& exchange, bool& begun,
                               const std::function<void()>& ends) {
    std::string body;
    Headers headers = reader.headers();
    const int status = reader.status();
    if (reader.has_length() && reader.length() <= kMostWhole) {
        const Failure failure = co_await ReadWhole(reader, kMostWhole + 1, body);
        if (failure) co_return failure;
        ends();
        exchange.Send(status, std::move(headers), std::move(body));
        co_return Failure();
    }
    exchange.Begin(status, std::move(headers));
    begun = true;
    co_return co_await PassOn(reader, exchange, ends);
}

}  // namespace

asio::awaitable<Forwarded> Forward(Socket& socket, int port, Exchange& exchange, StreamForm form,
                                   bool begun, const std::function<void()>& ends) {
    Forwarded result{.begun = begun};
    if (exchange.gone()) co_return result;  // (connecting would open a closed socket again)
    const std::string head = HeadOf(exchange.request(), port);
    Failure failure = co_await Connect(socket, port, head, exchange.request().body);
    Reader reader(socket);
    if (!failure) failure = co_await reader.ReadHead();
    if (!failure && begun) {
        failure = co_await GoOn(reader, exchange, form, ends);
    } else if (!failure) {
        failure = co_await Relay(reader, exchange, result.begun, ends);
    }
    if (failure && !exchange.gone()) result.broken = failure.message();
    Failure ignored;
    socket.close(ignored);
    co_return result;
}

asio::awaitable<std::optional<Fetched>> Fetch(int port, const HttpRequest& asked,
                                              std::string target) {
    const auto executor = co_await asio::this_coro::executor;
    // Shared: the timer may have expired when the coroutine ends.
    const auto shared = std::make_shared<Socket>(executor);
    Socket& socket = *shared;
    asio::steady_timer timer(executor, std::chrono::milliseconds(kFetchMs));
    timer.async_wait([shared](const Failure& cancelled) {
        Failure ignored;
        if (!cancelled) shared->close(ignored);
    });
    const std::string head = FetchHead(port, asked, target), nothing;
    std::string body;
    Failure failure = co_await Connect(socket, port, head, nothing);
    Reader reader(socket);
    if (!failure) failure = co_await reader.ReadHead();
    if (!failure) failure = co_await ReadWhole(reader, SIZE_MAX, body);
    timer.cancel();
    if (failure) co_return std::nullopt;
    co_return Fetched{reader.status(), std::move(body)};
}

asio::awaitable<std::optional<std::string>> FetchText(int port, const HttpRequest& asked,
                                                      std::string target) {
    auto fetched = co_await Fetch(port, asked, std::move(target));
    if (!fetched || fetched->status != 200) co_return std::nullopt;
    co_return std::move(fetched->body);
}

}  // namespace weft::serve
