// RamStore: the tier of PageStore in host memory.
#pragma once

#include <list>
#include <map>

#include "engine/page_store/page_store.h"

namespace weft::engine {

class RamStore final : public PageStore {
  public:
    // most_bytes: of all pages together.
    explicit RamStore(int64_t most_bytes) : most_bytes_(most_bytes) {}

    bool Has(const PageKey& key) override { return pages_.contains(key); }
    bool IsKept(const PageKey& key) override { return pages_.contains(key); }
    void Put(const PageKey& key, const PageBytes& bytes) override;
    void Touch(const PageKey& key) override;
    bool Get(const PageKey& key, std::span<std::byte> out) override;
    PageStoreCounts counts() const override { return counts_; }

  private:
    struct Page {
        PageKey key;
        PageBytes bytes;
    };
    const int64_t most_bytes_;
    std::list<Page> by_use_;  // most recent first
    std::map<PageKey, std::list<Page>::iterator> pages_;
    PageStoreCounts counts_;
};

}  // namespace weft::engine
