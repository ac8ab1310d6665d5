// The members of a request that no reader takes: members of other servers' APIs, and unknown ones.
//
// A known member is refused if its value requests an answer that Weft cannot give, and an unknown
// member if it carries a part of the conversation. Other members without effect are ignored: the
// log line of the request and the answer's header kLeftOutHeader name them. The log names an
// unknown member in a second line, because it may be misspelt.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

inline constexpr const char* kLeftOutHeader = "X-Weft-Left-Out";

struct LeftMembers {
    std::string left_out{};           // members without effect, "NAME,NAME"
    std::set<std::string> notices{};  // about unknown members; the log gets each once
};

// Call it after all readers. Fails if a member's value would need another answer.
void CheckMembers(Fields& fields, const Served& served, LeftMembers& left);

// Adds the names of members that no call of `part`, an inner object, has read, with their paths.
void AddUnread(const Fields& part, std::string& names);

// Adds the names of `more` to a list "NAME,NAME", each once.
void AddNames(std::string& names, std::string_view more);

}  // namespace weft::serve
