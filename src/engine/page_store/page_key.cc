#include "engine/page_store/page_key.h"

#include <initializer_list>

#include "base/check.h"

namespace weft::engine {
namespace {

std::span<const std::byte> BytesOf(std::string_view text) {
    return std::as_bytes(std::span(text));
}

// SHA-256 of `parts`, one after another. (All parts but the last have fixed sizes.)
Sha256Digest HashOf(std::initializer_list<std::span<const std::byte>> parts) {
    std::vector<std::byte> all;
    for (const auto part : parts) all.insert(all.end(), part.begin(), part.end());
    return Sha256(all);
}

}  // namespace

PageKeys::PageKeys(std::string_view job, std::string_view adapters, int64_t page_tokens)
    : job_(Sha256(BytesOf(job))), adapters_(Sha256(BytesOf(adapters))), page_tokens_(page_tokens) {}

PageKey PageKeys::Root(const PrefixSpace& space) const {
    const int32_t adapter[] = {space.adapter};
    return HashOf({std::as_bytes(std::span(job_)), std::as_bytes(std::span(adapter)),
                   std::as_bytes(std::span(space.adapter > 0 ? adapters_ : Sha256Digest{})),
                   BytesOf(space.tenant)});
}

void PageKeys::Extend(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t pages,
                      std::vector<PageKey>& keys) const {
    WEFT_CHECK(pages * page_tokens_ <= static_cast<int64_t>(tokens.size()));
    const auto page_tokens = static_cast<size_t>(page_tokens_);
    while (static_cast<int64_t>(keys.size()) < pages) {
        const PageKey before = keys.empty() ? Root(space) : keys.back();
        const auto page = tokens.subspan(keys.size() * page_tokens, page_tokens);
        keys.push_back(HashOf({std::as_bytes(std::span(before)), std::as_bytes(page)}));
    }
}

PageKey KeyOfShare(const KeyedPage& page, const Sha256Digest& shard) {
    return HashOf({std::as_bytes(std::span(page.key)), std::as_bytes(std::span(shard)),
                   BytesOf(page.is_state ? "state" : "page")});
}

}  // namespace weft::engine
