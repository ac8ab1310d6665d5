#include "cluster/join/host_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <span>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "net/addresses.h"

namespace weft::cluster {
namespace {

constexpr size_t kMostHostFile = 1 << 20;

std::string_view Short(std::string_view name) {
    return name.substr(0, name.find('.'));
}

// A name also matches without its domain; an address (10.0.0.1) has no domain.
bool IsOwn(std::string_view host, const std::vector<std::string>& own) {
    const bool named = host.find_first_not_of("0123456789.:") != std::string_view::npos;
    return std::ranges::any_of(own, [&](const std::string& mine) {
        return mine == host || (named && Short(mine) == Short(host));
    });
}

// Length of the host in HOST, HOST:PORT or [IPV6]:PORT.
size_t HostEnd(std::string_view word) {
    const size_t colon = word.rfind(':');
    const bool port = colon != word.npos && (word.find(':') == colon || word[colon - 1] == ']');
    return port ? colon : word.size();
}

// A line's words: a host, and perhaps "slots=1" and the unused "max_slots=8".
Status CheckLine(const std::vector<std::string_view>& words, const std::string& where) {
    const std::string_view host = words[0].substr(0, HostEnd(words[0]));
    if (const size_t at = host.find('@'); at != host.npos) {
        return MakeError(ErrorCode::kUsage,
                         "{}: '{}' names a user; a worker is reached without ssh: {}", where,
                         words[0], words[0].substr(at + 1));
    }
    for (const std::string_view word : std::span(words).subspan(1)) {
        const size_t equals = word.find('=');
        const std::string_view name = word.substr(0, equals);
        const std::string_view digits = equals == word.npos ? "" : word.substr(equals + 1);
        int count = 0;
        const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), count);
        const bool known = name == "slots" || name == "max_slots" || name == "max-slots";
        if (!known || parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) {
            return MakeError(ErrorCode::kUsage,
                             "{}: '{}'; expected a host a line, as b, b:7000 or b slots=1", where,
                             word);
        }
        if (name != "slots" || count == 1) continue;
        return MakeError(ErrorCode::kUsage,
                         "{}: {} on {}, but a worker runs one rank. Start a worker for each, on "
                         "ports of their own, and give each a line: {}:7000, {}:7001",
                         where, word, words[0], host, host);
    }
    return {};
}

// Names and addresses of this host that may be in a file.
std::vector<std::string> OwnNames() {
    std::vector<std::string> names = {"localhost"};
    char name[256] = "";
    if (::gethostname(name, sizeof name - 1) == 0) names.emplace_back(name);
    for (const net::LocalAddress& local : net::ListLocalAddresses()) names.push_back(local.address);
    return names;
}

}  // namespace

Result<std::vector<std::string>> ParseHostFile(std::string_view text, const std::string& path,
                                               const std::vector<std::string>& own) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    std::vector<std::string> hosts;
    bool names_any = false;
    for (int number = 1; !text.empty(); ++number) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        const std::vector<std::string_view> words = Words(line.substr(0, line.find('#')));
        if (words.empty()) continue;
        names_any = true;
        const std::string where = fmt::format("{}:{}", path, number);
        WEFT_TRY(CheckLine(words, where));
        if (words.size() > 1 && IsOwn(words[0], own)) {
            Log(LogLevel::kInfo, "{}: {} is this host, which is rank 0", where, words[0]);
            continue;
        }
        hosts.emplace_back(words[0]);
    }
    if (names_any) return hosts;
    return MakeError(ErrorCode::kUsage, "{} lists no host; expected a host a line, as b or b:7000",
                     path);
}

Result<std::vector<std::string>> ReadHostFile(const std::string& path) {
    WEFT_ASSIGN(const std::string text, ReadTextFile(path, kMostHostFile));
    return ParseHostFile(text, path, OwnNames());
}

}  // namespace weft::cluster
