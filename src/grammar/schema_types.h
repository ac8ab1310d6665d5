// The types of an object's properties, read by the code that compiles grammars: references, allOf,
// anyOf and the keywords of other drafts mean the same in both.
#pragma once

#include <map>
#include <set>
#include <string>

#include "grammar/schema_merge.h"

namespace weft::grammar {

// JSON schema's names of types without "integer", which is a "number".
using TypeNames = std::set<std::string, std::less<>>;

// The types that a valid object's properties may have; all types if the schema does not restrict
// them or exceeds the budget. "": other properties, if the schema restricts them.
std::map<std::string, TypeNames, std::less<>> PropertyTypes(const Schema& schema,
                                                            MergeBudget& budget);

}  // namespace weft::grammar
