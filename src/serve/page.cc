#include "serve/page.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

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

// Whether an If-None-Match header has `etag` (RFC 9110, 13.1.2; weak comparison).
bool Matches(std::string_view header, std::string_view etag) {
    return header == "*" || header.find(etag) != std::string_view::npos;
}

// Whether Accept-Encoding allows gzip (RFC 9110, 12.5.3).
bool AcceptsGzip(std::string_view header) {
    while (!header.empty()) {
        const size_t comma = std::min(header.find(','), header.size());
        std::string item(header.substr(0, comma));
        header.remove_prefix(std::min(comma + 1, header.size()));
        std::erase_if(item, [](char c) { return c == ' ' || c == '\t'; });
        const size_t end = std::min(item.find(';'), item.size());
        if (item.substr(0, end) != "gzip") continue;
        const std::string quality = item.substr(end);
        return !quality.starts_with(";q=0") || quality.find_first_of("123456789") < quality.size();
    }
    return false;
}

// Compressed bytes need their own ETag.
std::string ZippedEtag(const PageFile& file) {
    std::string etag(file.etag);
    etag.insert(etag.size() - 1, "-gzip");
    return etag;
}

std::string_view Stored(const PageFile& file) {
    return {reinterpret_cast<const char*>(file.bytes), file.size_bytes};
}

}  // namespace

std::string PageText(const PageFile& file) {
    if (!file.zipped) return std::string(Stored(file));
    uint32_t length = 0;
    if (file.size_bytes < sizeof length) return {};
    std::memcpy(&length, file.bytes + file.size_bytes - sizeof length, sizeof length);
    std::string text(length, '\0');
    z_stream stream{};
    stream.next_in = const_cast<Bytef*>(file.bytes);
    stream.avail_in = static_cast<uInt>(file.size_bytes);
    stream.next_out = reinterpret_cast<Bytef*>(text.data());
    stream.avail_out = length;
    WEFT_CHECK(::inflateInit2(&stream, MAX_WBITS + 16) == Z_OK);
    const bool whole = ::inflate(&stream, Z_FINISH) == Z_STREAM_END;
    ::inflateEnd(&stream);
    if (!whole || stream.avail_out != 0) return {};
    return text;
}

namespace {

// The uncompressed content of one of PageFiles(). It is made once, because an I/O thread sends it.
std::string_view KeptText(const PageFile& file) {
    struct Text {
        std::once_flag made;
        std::string text;
    };
    static std::vector<Text> texts(PageFiles().size());
    if (!file.zipped) return Stored(file);
    Text& kept = texts[static_cast<size_t>(&file - PageFiles().data())];
    std::call_once(kept.made, [&] { kept.text = PageText(file); });
    return kept.text;
}

}  // namespace

bool IsPage(std::string_view path) {
    return Find(path) != nullptr;
}

bool ServePage(Exchange& exchange) {
    const HttpRequest& request = exchange.request();
    if (request.method != "GET" && request.method != "HEAD") return false;
    const PageFile* file = Find(request.path);
    if (file == nullptr) return false;
    const bool zip = file->zipped && AcceptsGzip(request.Header("Accept-Encoding"));
    const std::string zipped_etag = ZippedEtag(*file);
    Headers headers{{"ETag", zip ? zipped_etag : std::string(file->etag)},
                    {"Vary", "Accept-Encoding"},
                    {"Cache-Control", "no-cache"},
                    {"Content-Security-Policy", std::string(kPolicy)},
                    {"X-Content-Type-Options", "nosniff"},
                    {"Referrer-Policy", "no-referrer"}};
    const std::string_view known = request.Header("If-None-Match");
    if (Matches(known, file->etag) || Matches(known, zipped_etag)) {
        exchange.Send(304, std::move(headers), {});
        return true;
    }
    headers.emplace_back("Content-Type", file->type);
    if (zip) headers.emplace_back("Content-Encoding", "gzip");
    exchange.SendKept(200, std::move(headers), zip ? Stored(*file) : KeptText(*file));
    return true;
}

}  // namespace weft::serve
