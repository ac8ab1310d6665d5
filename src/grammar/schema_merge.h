// Transforms JSON schemas: resolves references, rewrites keywords of other drafts and of OpenAPI to
// keywords that the compiler supports, and merges schemas that apply together (allOf, and a schema
// beside $ref or anyOf).
//
// Errors: kUsage with the schema's path. The work is limited.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/schema_keywords.h"

namespace weft::grammar {

// The remaining budget of work, which all schemas of a request or of a grammar share.
struct MergeBudget {
    static constexpr size_t kTextNodeBytes = 64;  // bytes of a text that count as a node

    size_t nodes = 1 << 20;        // values that may be examined or copied
    size_t comparisons = 1 << 26;  // of names and enumerated values
};

class SchemaMerger {
  public:
    static constexpr int kMostDepth = 64;

    // The root and the budget must outlive the merger.
    SchemaMerger(const Schema& root, Leniency leniency, MergeBudget& budget)
        : root_(root), leniency_(leniency), budget_(budget) {}

    // The schema that "#/..." refers to.
    Result<const Schema*> Resolve(const Schema& ref, std::string_view path) const;

    // The schema with only keywords that grammars support (IsKept): others are rewritten, skipped
    // or rejected. nullopt: grammars support all its keywords.
    Result<std::optional<Schema>> Known(const Schema& schema, const std::string& path, int depth);
    // The schema without $ref and allOf at its top level. nullopt: no value is valid.
    Result<std::optional<Schema>> Flat(const Schema& schema, const std::string& path, int depth);
    // A flat schema for the values that are valid for both. nullopt: there are none.
    Result<std::optional<Schema>> Both(const Schema& a, const Schema& b, const std::string& path,
                                       int depth);
    // True only if no value accepted by the grammar of `a` is valid for `b`.
    Result<bool> Apart(const Schema& a, const Schema& b, const std::string& path, int depth);

  private:
    Status Charge(const Schema& schema, const std::string& path, int depth);
    // Counts the comparisons of each of `a` items with each of `b` others.
    Status ChargeComparisons(size_t a, size_t b, const std::string& path);
    Result<std::optional<Schema>> Plain(const Schema& a, const Schema& b, const std::string& path,
                                        int depth);
    Result<std::optional<Schema>> Alternatives(const Schema& a, std::string_view key,
                                               const Schema& b, const std::string& path, int depth);
    Status MergeObjects(const Schema& a, const Schema& b, const std::string& path, int depth,
                        Schema& out);
    Status MergeItems(const Schema& a, const Schema& b, const std::string& path, int depth,
                      Schema& out);
    Result<bool> ApartObjects(const Schema& a, const Schema& b, const std::string& path, int depth);

    Status LeaveUnknown(Schema& schema, const std::string& path) const;
    Status LeaveCounts(Schema& schema, const std::string& path) const;
    Status KnowNames(Schema& schema, const std::string& path, int depth);
    Status ListNames(Schema& schema, const Schema& names, const std::string& path);

    const Schema& root_;
    Leniency leniency_;
    MergeBudget& budget_;
};

}  // namespace weft::grammar
