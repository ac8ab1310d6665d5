// PageKey: the name of a KV page by its content, for pages outside of the device's memory
// (page_store.h).
//
// Keys form a chain, as in the prefix cache's tree: the key of a page is the SHA-256 of the key of
// the page before it and of the tokens of the page. So a key names all tokens up to the end of its
// page. The first link is the space of the text (tenant and adapter) and the job: everything on
// which the bits of the page depend (RankPages::Describe). Rank 0 computes the keys; each rank then
// derives the name of its own share (KeyOfShare). The key of the recurrent state at a page border
// is the key of the page before the border, with another kind of share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "engine/batch/prefix_cache.h"

namespace weft::engine {

using PageKey = Sha256Digest;

// A page in the device's memory, or a slot of recurrent state, and its key.
struct KeyedPage {
    PageKey key{};
    int32_t place = -1;  // number of the page or of the slot
    bool is_state = false;
    bool is_used = false;  // a page that was used, not just completed: it may be kept already
};

// The keys of one job. Thread: any.
class PageKeys {
  public:
    // job: see above. adapters: a hash of the job's LoRA adapters.
    PageKeys(std::string_view job, std::string_view adapters, int64_t page_tokens);

    // Appends to `keys`, which holds the keys of the first pages of `tokens`, until it has the keys
    // of `pages` pages.
    void Extend(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t pages,
                std::vector<PageKey>& keys) const;
    // All on which the bits of pages depend, besides their texts and the owners of these.
    PageKey Identity(int32_t adapter) const { return Root({"", adapter}); }

  private:
    PageKey Root(const PrefixSpace& space) const;

    Sha256Digest job_{}, adapters_{};
    int64_t page_tokens_;
};

// The name of a rank's share of a page or of a state. shard: a hash of all that distinguishes the
// rank's share.
PageKey KeyOfShare(const KeyedPage& page, const Sha256Digest& shard);

}  // namespace weft::engine
