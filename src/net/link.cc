#include "net/link.h"

#include <fmt/format.h>

namespace weft::net {

std::string PeerName::Text() const {
    return fmt::format("rank {} (host {}, {})", rank, host, transport);
}

std::string OpTag::Text() const {
    if (op[0] == '\0') return "data";
    return fmt::format("{} #{} of step {}", op, index, step);
}

}  // namespace weft::net
