#include "serve/page.h"

#include <algorithm>
#include <string>

namespace weft::serve {
namespace {

constexpr std::string_view kAssets = "/assets/";
constexpr std::string_view kPolicy =
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

const PageFile* Find(std::string_view path) {
    std::string_view name = "index.html";
    if (path == "/openapi.json") {
        name = "openapi.json";
    } else if (path != "/") {
        if (!path.starts_with(kAssets)) return nullptr;
        name = path.substr(kAssets.size());
    }
    const std::span<const PageFile> files = PageFiles();
    const auto found = std::find_if(files.begin(), files.end(),
                                    [&](const PageFile& file) { return file.name == name; });
    return found == files.end() ? nullptr : &*found;
}

// Whether one of the tags of If-None-Match is `etag` (RFC 9110, 13.1.2; weak ones count).
bool Matches(std::string_view header, std::string_view etag) {
    return header == "*" || header.find(etag) != std::string_view::npos;
}

}  // namespace

bool ServePage(Exchange& exchange) {
    const HttpRequest& request = exchange.request();
    if (request.method != "GET" && request.method != "HEAD") return false;
    const PageFile* file = Find(request.path);
    if (file == nullptr) return false;
    Headers headers{{"ETag", std::string(file->etag)},
                    {"Cache-Control", "no-cache"},
                    {"Content-Security-Policy", std::string(kPolicy)},
                    {"X-Content-Type-Options", "nosniff"},
                    {"Referrer-Policy", "no-referrer"}};
    if (Matches(request.Header("If-None-Match"), file->etag)) {
        exchange.Send(304, std::move(headers), {});
        return true;
    }
    headers.emplace_back("Content-Type", file->type);
    exchange.Send(200, std::move(headers),
                  std::string(reinterpret_cast<const char*>(file->bytes), file->size_bytes));
    return true;
}

}  // namespace weft::serve
