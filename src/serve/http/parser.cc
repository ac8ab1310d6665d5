#include "serve/http/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <cctype>
#include <limits>
#include <utility>

namespace weft::serve {
namespace {

namespace http = boost::beast::http;
using boost::beast::string_view;
using ErrorCodeOut = boost::beast::error_code;

constexpr size_t kMostFoldedBytes = 4096;  // Beast's limit of a folded header

std::string_view View(string_view text) {
    return {text.data(), text.size()};
}

}  // namespace

// Receives Beast's callbacks; one that refuses sets `ec` to stop parsing.
class RequestParser::Impl final : public http::basic_parser<true> {
  public:
    explicit Impl(const ParserLimits& limits) : limits_(limits) {
        header_limit(static_cast<uint32_t>(std::min<size_t>(limits.head_bytes, 1u << 30)) + 1);
        // Fits() enforces the limit; Beast's own check loses a chunk when a head is incomplete.
        body_limit(std::numeric_limits<uint64_t>::max());
    }

    Step Feed(std::string_view& bytes) {
        if (refused_) return Step::kRefused;
        if (!is_header_done()) return FeedHead(bytes);
        while (!bytes.empty() && !is_done()) {
            ErrorCodeOut ec;
            const size_t taken = put(boost::asio::const_buffer(bytes.data(), bytes.size()), ec);
            bytes.remove_prefix(std::min(taken, bytes.size()));
            if (ec == http::error::need_more) {
                return bytes.size() > limits_.head_bytes ? RefuseLongLine(bytes) : Step::kMore;
            }
            if (ec) return Refuse(ec);
        }
        return is_done() ? Step::kDone : Step::kMore;
    }

    HttpRequest request;
    Refusal refusal;

  private:
    // Passes the head to Beast only when it is complete, so that the result does not depend on how
    // it was split. Input that cannot become a head is rejected at once.
    Step FeedHead(std::string_view& bytes) {
        while (scanned_ == 0 && bytes.starts_with("\r\n") && skipped_ < limits_.head_bytes) {
            bytes.remove_prefix(2);  // empty lines before a request (RFC 9112 2.2)
            skipped_ += 2;
        }
        if (bytes == "\r") return Step::kMore;
        bool whole = false;
        while (!whole && scanned_ < bytes.size()) {
            const auto c = static_cast<unsigned char>(bytes[scanned_]);
            const char before = scanned_ > 0 ? bytes[scanned_ - 1] : ' ';
            if ((before == '\r') != (c == '\n')) return Refuse(http::error::bad_line_ending);
            if ((c < 0x20 && c != '\r' && c != '\n' && c != '\t') || c == 0x7f) {
                return Refuse(400, "the request's head contains a control character");
            }
            ++scanned_;
            if (skipped_ + scanned_ > limits_.head_bytes) return RefuseLong(bytes);
            whole = c == '\n' && bytes.substr(0, scanned_).ends_with("\r\n\r\n");
        }
        if (!whole) return Step::kMore;
        ErrorCodeOut ec;
        const std::string_view head = bytes.substr(0, scanned_);
        bytes.remove_prefix(scanned_);
        const size_t taken = put(boost::asio::const_buffer(head.data(), head.size()), ec);
        if (refused_) return Step::kRefused;  // set by a callback
        if (ec == http::error::bad_version && IsOtherVersion(head)) {
            return Refuse(505, "this server supports HTTP/1.1 and HTTP/1.0");
        }
        if (ec) return Refuse(ec);
        if (taken != head.size() || !is_header_done()) return Refuse(http::error::bad_method);
        if (!CheckHead()) return Step::kRefused;
        return is_done() ? Step::kDone : Step::kHead;
    }

    Step RefuseLong(std::string_view bytes) {
        // Tells an overlong request line from overlong headers, ignoring empty lines before it.
        if (skipped_ < scanned_ && bytes.substr(0, scanned_).find("\r\n") == bytes.npos) {
            return Refuse(
                414, fmt::format("the request line is longer than {} bytes", limits_.head_bytes));
        }
        return Refuse(
            431, fmt::format("the request's headers are longer than {} bytes", limits_.head_bytes));
    }

    // Beast parses the last chunk's line together with the trailers.
    Step RefuseLongLine(std::string_view bytes) {
        if (bytes.starts_with("\r\n")) bytes.remove_prefix(2);  // end of a chunk
        if (bytes.find("\r\n") != bytes.npos) {
            return Refuse(431, fmt::format("the request's trailers are longer than {} bytes",
                                           limits_.head_bytes));
        }
        return Refuse(400, fmt::format("a line of the chunked body is longer than {} bytes",
                                       limits_.head_bytes));
    }

    // "GET / HTTP/2.0"
    static bool IsOtherVersion(std::string_view head) {
        const std::string_view line = head.substr(0, head.find('\r'));
        if (line.size() < 9) return false;
        const std::string_view version = line.substr(line.size() - 9);
        return version.starts_with(" HTTP/") && !version.ends_with("1.0") &&
               !version.ends_with("1.1") && version[7] == '.' &&
               std::isdigit(static_cast<unsigned char>(version[6])) != 0 &&
               std::isdigit(static_cast<unsigned char>(version[8])) != 0;
    }

    Step Refuse(int status, std::string message, std::string code = {}) {
        refused_ = true;
        refusal = {status, std::move(message), std::move(code)};
        return Step::kRefused;
    }

    Step Refuse(ErrorCodeOut ec) {
        if (refused_) return Step::kRefused;  // set by a callback, with a better message
        if (ec == http::error::body_limit) return RefuseBody();
        if (ec == http::error::header_limit) {
            return Refuse(431, fmt::format("a header folded over several lines is longer than {} "
                                           "bytes; write it in one line",
                                           kMostFoldedBytes));
        }
        return Refuse(400, fmt::format("this is not an HTTP/1.1 request: {}", ec.message()));
    }

    bool Fail(ErrorCodeOut& ec, int status, std::string message) {
        Refuse(status, std::move(message));
        ec = http::error::bad_value;
        return false;
    }

    // Whether `bytes` more body bytes are within the limit.
    bool Fits(uint64_t bytes) {
        if (bytes <= limits_.body_bytes - request.body.size()) return true;
        RefuseBody();
        return false;
    }
    Step RefuseBody() {
        return Refuse(413,
                      fmt::format("the request's body is longer than {} bytes", limits_.body_bytes),
                      "request_too_large");
    }

    // Checks that need the complete head.
    bool CheckHead() {
        if (!Fits(content_length().value_or(0))) return false;
        const auto refuse = [&](int status, const char* text) {
            Refuse(status, text);
            return false;
        };
        if (request.http11 && hosts_ != 1) {
            return refuse(400, "an HTTP/1.1 request must have exactly one Host header");
        }
        // Beast refuses `chunked` beside another coding after it or a Content-Length.
        if (coded_ && !request.http11) {
            return refuse(400, "HTTP/1.0 does not support Transfer-Encoding");
        }
        if (coded_ && !SameName(request.Header("Transfer-Encoding"), "chunked")) {
            return refuse(501, "the only supported Transfer-Encoding is chunked");
        }
        const std::string_view expect = request.Header("Expect");
        if (!expect.empty() && !SameName(expect, "100-continue")) {
            return refuse(417, "the only supported expectation is 100-continue");
        }
        return true;
    }

    void on_request_impl(http::verb, string_view method, string_view target, int version,
                         ErrorCodeOut& ec) override {
        request.method = View(method);
        request.target = View(target);
        request.http11 = version == 11;
        if (View(target) == "*" && request.method != "OPTIONS") {
            Fail(ec, 400, "the target '*' is valid for OPTIONS only");
            return;
        }
        const auto split = SplitTarget(request.target, request.path, request.query);
        if (!split.ok()) Fail(ec, 400, split.error().message);
    }

    void on_field_impl(http::field field, string_view name, string_view value,
                       ErrorCodeOut& ec) override {
        if (++fields_ > limits_.headers) {
            Fail(ec, 431, fmt::format("the request has more than {} headers", limits_.headers));
            return;
        }
        if (is_header_done()) return;  // trailers are dropped
        if (field == http::field::host) ++hosts_;
        if (field == http::field::transfer_encoding) coded_ = true;
        request.headers.emplace_back(View(name), View(value));
    }

    void on_header_impl(ErrorCodeOut&) override {}
    void on_body_init_impl(const boost::optional<uint64_t>&, ErrorCodeOut&) override {}
    size_t on_body_impl(string_view body, ErrorCodeOut&) override {
        request.body.append(body.data(), body.size());
        return body.size();
    }
    void on_chunk_header_impl(uint64_t size, string_view, ErrorCodeOut& ec) override {
        if (!Fits(size)) ec = http::error::body_limit;
    }
    size_t on_chunk_body_impl(uint64_t, string_view body, ErrorCodeOut&) override {
        request.body.append(body.data(), body.size());
        return body.size();
    }
    void on_response_impl(int, string_view, int, ErrorCodeOut&) override {}
    void on_finish_impl(ErrorCodeOut&) override {}

    const ParserLimits limits_;
    size_t skipped_ = 0, scanned_ = 0, fields_ = 0;
    int hosts_ = 0;
    bool coded_ = false, refused_ = false;
};

RequestParser::RequestParser(const ParserLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
RequestParser::~RequestParser() = default;

RequestParser::Step RequestParser::Feed(std::string_view& bytes) {
    return impl_->Feed(bytes);
}
bool RequestParser::head_done() const {
    return impl_->is_header_done();
}
bool RequestParser::keep_alive() const {
    return impl_->keep_alive();
}
bool RequestParser::expects_continue() const {
    return impl_->request.http11 && !impl_->request.Header("Expect").empty();
}
uint64_t RequestParser::content_length() const {
    return impl_->content_length().value_or(0);
}
size_t RequestParser::body_bytes() const {
    return impl_->request.body.size();
}
const Refusal& RequestParser::refusal() const {
    return impl_->refusal;
}
const HttpRequest& RequestParser::request() const {
    return impl_->request;
}

HttpRequest RequestParser::Take() {
    HttpRequest request = std::move(impl_->request);
    const std::string_view id = request.Header("X-Request-Id");
    request.id = IsSaneRequestId(id) ? std::string(id) : MakeRequestId();
    return request;
}

}  // namespace weft::serve
