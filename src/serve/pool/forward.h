// Internal: passes one request to the process of its model, and the answer back to the client. Both
// directions hold little: the client's exchange holds the request's body, and reading of an answer
// pauses while the client has not read kMostUnread bytes. Includes Boost.Asio; .cc files only.
#pragma once

#include <utility>  // before Boost 1.74's awaitable.hpp, which lacks it

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "serve/http/server.h"
#include "serve/pool/ask.h"

namespace weft::serve {

struct Forwarded {
    // Why the client has no complete answer; "": it is complete, or the client disconnected.
    std::string broken{};
    bool begun = false;  // a part of the answer has been sent
};

// Forwards exchange.request() to the server at 127.0.0.1:port over `socket`, which the caller may
// close to cancel. begun: the stream has begun with comments; an error of the server then becomes
// the stream's last event. ends: called before the client gets the end of the answer. Thread: the
// thread of the socket's executor. The arguments outlive the coroutine.
boost::asio::awaitable<Forwarded> Forward(boost::asio::ip::tcp::socket& socket, int port,
                                          Exchange& exchange, StreamForm form, bool begun,
                                          const std::function<void()>& ends);

inline constexpr int64_t kFetchMs = 2000;

struct Fetched {
    int status = 0;
    std::string body;
};

// The answer of 127.0.0.1:port to a request without a body; nullopt: none within kFetchMs.
// `asked` gives method, target and key; a `target` that is not empty replaces its target.
boost::asio::awaitable<std::optional<Fetched>> Fetch(int port, const HttpRequest& asked,
                                                     std::string target);

// The body of Fetch's answer if its status is 200.
boost::asio::awaitable<std::optional<std::string>> FetchText(int port, const HttpRequest& asked,
                                                             std::string target);

}  // namespace weft::serve
