// JSON schemas as data: references, what other drafts and OpenAPI spell otherwise in the words that
// the compiler knows, and schemas that hold together (allOf, and a schema beside a $ref or anyOf)
// as one schema.
//
// Errors: kUsage with the schema's path. The work is bounded.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/schema_keywords.h"

namespace weft::grammar {

class SchemaMerger {
  public:
    static constexpr int kMostDepth = 64;
    // Looked at or copied, all together: a value, or so many bytes of a text or name.
    static constexpr size_t kMostNodes = 1 << 20, kTextNodeBytes = 64;
    // Comparisons of names and listed values, all together.
    static constexpr size_t kMostComparisons = 1 << 26;

    SchemaMerger(const Schema& root, Leniency leniency) : root_(root), leniency_(leniency) {}

    // What "#/..." stands for.
    Result<const Schema*> Resolve(const Schema& ref, std::string_view path) const;

    // The schema with the keywords alone that grammars keep (IsKept): others are written otherwise,
    // left out, or refused. Nothing: it has no others.
    Result<std::optional<Schema>> Known(const Schema& schema, const std::string& path, int depth);
    // The schema without $ref and allOf at its top. Nothing: no value satisfies it.
    Result<std::optional<Schema>> Flat(const Schema& schema, const std::string& path, int depth);
    // What satisfies both, flat. Nothing: no value does.
    Result<std::optional<Schema>> Both(const Schema& a, const Schema& b, const std::string& path,
                                       int depth);
    // Surely no value that the grammar of `a` lets through satisfies `b`.
    Result<bool> Apart(const Schema& a, const Schema& b, const std::string& path, int depth);

  private:
    Status Charge(const Schema& schema, const std::string& path, int depth);
    // For a look-up of `a` things among `b` others, one by one.
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
    size_t nodes_ = 0, comparisons_ = 0;
};

}  // namespace weft::grammar
