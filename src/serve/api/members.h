// The members of a request that no reader takes: members of other servers' APIs, and unknown ones.
//
// A known member whose value asks for another answer than Weft would give is refused. Other known
// members are left out, and the log names them (RequestNote::left_out). The log names an unknown
// member once.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

struct LeftMembers {
    std::string left_out{};           // known members without effect, "NAME,NAME"
    std::set<std::string> notices{};  // about unknown members; the log gets each once
};

// Call it after all readers. Fails if a member's value would need another answer.
void CheckMembers(Fields& fields, const Served& served, LeftMembers& left);

// Adds the names of `more` to a list "NAME,NAME", each once.
void AddNames(std::string& names, std::string_view more);

}  // namespace weft::serve
