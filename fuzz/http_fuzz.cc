// libFuzzer target: any bytes as those of a connection, cut anywhere. The cuts must not change the
// requests. Accepted paths cannot leave their folder, limits hold, and no client text becomes a
// header of an answer. The target also reads the same bytes as a file of API keys.
//     build-fuzz/fuzz/http_fuzz -max_total_time=60 -malloc_limit_mb=256 fuzz/corpus/http
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "serve/http/cors.h"
#include "serve/http/parser.h"
#include "serve/keys.h"

namespace {

using namespace weft::serve;
using Step = RequestParser::Step;

constexpr ParserLimits kLimits{.head_bytes = 1024, .headers = 16, .body_bytes = 4096};
constexpr int kMostRequests = 16;

void Require(bool fact) {
    if (!fact) std::abort();
}

void CheckRequest(const HttpRequest& request) {
    Require(request.body.size() <= kLimits.body_bytes);
    Require(request.headers.size() <= kLimits.headers);
    Require(!request.method.empty() && IsSaneRequestId(request.id));
    const std::string& path = request.path;
    if (path == "*") return;
    Require(path.starts_with('/') && path.find('\\') == path.npos);
    Require(path.find('\0') == path.npos && path.find('\n') == path.npos);
    const std::string closed = path + "/";
    Require(closed.find("/../") == path.npos && closed.find("/./") == path.npos);
    const Headers echo = {{"X-Path", path}, {path, request.query}};
    const std::string head = FormatHead({.request_id = request.id}, echo);
    Require(head.find("\r\n\r\n") == head.size() - 4);
    size_t lines = 0;
    for (char c : head) lines += c == '\n';
    Require(lines == 4 + 2 + 1);
    CorsHeaders(request, {"https://a"});
    OptionsHeaders(request, {"*"});
}

// Describes the bytes: all requests, then the end of the connection.
std::string Read(std::string_view bytes, size_t piece) {
    std::string found, waiting;
    auto parser = std::make_unique<RequestParser>(kLimits);
    int requests = 0;
    for (size_t at = 0; at < bytes.size(); at += piece) {
        waiting += bytes.substr(at, piece);
        std::string_view view = waiting;
        while (!view.empty()) {
            const size_t before = view.size();
            const Step step = parser->Feed(view);
            Require(view.size() <= before);
            if (step == Step::kMore) break;
            if (step == Step::kHead) {
                Require(parser->head_done());
                continue;
            }
            if (step == Step::kRefused) {
                Require(parser->refusal().status >= 400 && !parser->refusal().message.empty());
                return found + std::to_string(parser->refusal().status);
            }
            const bool keep_alive = parser->keep_alive();
            const HttpRequest request = parser->Take();
            CheckRequest(request);
            found += request.method + " " + request.path + "?" + request.query + "\n" +
                     request.body + "\n" + (keep_alive ? "+" : "-");
            for (const auto& [name, value] : request.headers) found += name + ":" + value + "\n";
            if (++requests == kMostRequests) return found;
            parser = std::make_unique<RequestParser>(kLimits);
        }
        waiting = std::string(view);
        Require(waiting.size() <= kLimits.head_bytes + piece);
    }
    return found + "more";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::string whole = Read(text, std::max<size_t>(1, size));
    const size_t piece = size == 0 ? 1 : 1 + data[size - 1] % 40;
    // A head that is too long may break another of two rules first if it arrives in pieces.
    const std::string cut = Read(text, piece);
    if (whole != cut) {
        Require(whole.ends_with("414") || whole.ends_with("431") || whole.ends_with("400") ||
                whole.ends_with("505") || whole.ends_with("413"));
        Require(!cut.ends_with("more"));
    }
    const auto ring = KeyRing::Parse(text, "keys");
    if (ring.ok()) {
        for (const ApiKey& key : ring->keys()) Require(CheckKey(key.name, key.limits).ok());
    }
    return 0;
}
