// RankPages: a rank's shares of KV pages outside of its device's memory, in the tiers that the job
// requests (page_store.h). Each share has the bytes of one page in all caches of the rank's
// Program, or of one slot in all of its recurrent states.
//
// Agreement of the ranks. A page counts only if every rank has its share. Rank 0 finds pages in its
// own tiers, allocates free pages of the KV cache for them, and sends all ranks one message with
// keys and pages (StepKind::kRestore). Each rank, rank 0 included, reads its shares in this order
// into the given pages, up to the first share that it does not have or that is damaged, and answers
// with the number of pages that it filled. Rank 0 uses as many as the rank with the fewest filled;
// the others are free pages again, whose contents do not matter. So no rank offers a page that it
// may lose before its use, ranks may share folders or not, and one message and one gather suffice.
// Pages to be kept need no answer: each step's message names the pages that the previous step
// completed (StepData::keyed), and each rank reads them before the step may overwrite them.
//
// Bits. Keys include all on which the bits of a page depend: the model's fingerprint, the Programs,
// shares and device identities of all ranks, the types of sums on the wire, and the
// version of Weft. So a restored page has the bytes that the same job computed. Thread: one caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "base/hash.h"
#include "base/result.h"
#include "engine/job.h"
#include "engine/page_store/page_key.h"
#include "engine/page_store/page_store.h"
#include "engine/page_store/slot_file.h"
#include "program/program.h"

namespace weft::engine {

class RankPages {
  public:
    // Opens the tiers of `job`. Null: the job requests none. Errors: as FolderStore::Open.
    static Result<std::unique_ptr<RankPages>> Open(const Job& job);

    // Sets the values whose pages and slots are kept. Call it whenever the Program changes. shard:
    // distinguishes this rank's share. executable must outlive its use.
    void Use(backend::Executable& executable, int64_t page_tokens, const Sha256Digest& shard);

    // Number of first pages of `keys` that this rank seems to have.
    int64_t Leading(std::span<const PageKey> keys);
    bool HasState(const PageKey& key);
    // Keeps shares of pages that are in the device's memory, or notes their use. Pages of one text
    // are in its order: the first pages then count as used last, because the later ones are useless
    // without them. Errors: the device's errors.
    Status Save(std::span<const KeyedPage> pages);
    // Fills pages in order, up to the first that this rank does not have; returns the number of
    // filled pages. progress: increases with each page. Errors: the device's errors.
    Result<int64_t> Restore(std::span<const KeyedPage> pages, std::atomic<int64_t>& progress);

    // Slots (slot_file.h). The outcome of this rank's file: its bytes, or why it failed.
    struct SlotOutcome {
        int64_t bytes = 0;
        std::optional<Error> error{};
        std::optional<OutputFile> written{};  // to be finished when all ranks have written theirs
    };
    // Sets the sizes of `head`, and returns what the file counts for in Job::slot_disk.
    int64_t SizeSlot(std::span<const KeyedPage> pages, SlotHead& head) const;
    // Writes this rank's file of `name` with shares of pages that are in the device's memory, and
    // perhaps of the state after them. host_bytes: SizeSlot of all ranks of this host, whose files
    // share a folder and together replace the files of an older save. kOutOfMemory in the outcome:
    // the files would exceed Job::slot_disk, or those of one API key (a folder in Job::slot_dir)
    // half of it. Errors: the device's errors.
    Result<SlotOutcome> SaveSlot(const std::string& name, int rank, int64_t host_bytes,
                                 const SlotHead& head, std::span<const KeyedPage> pages,
                                 std::atomic<int64_t>& progress);
    // Reads the file `path` of the save `set`: its entries then count as kept under the keys of
    // `pages`.
    SlotOutcome LoadSlot(const std::string& path, const Sha256Digest& set,
                         std::span<const KeyedPage> pages, std::atomic<int64_t>& progress);
    // The path of the file `name` of a rank.
    std::string SlotPath(const std::string& name, int rank) const;

    // Sizes of this rank's share of a page.
    int64_t page_bytes() const { return pages_.bytes; }
    // The counts of all tiers together; held_bytes counts only the last tier.
    PageStoreCounts counts() const;
    bool has_slots() const { return slots_ != nullptr; }
    // The tiers, for the log.
    std::string Text() const;

  private:
    // Pieces of a share: pages of caches, or slots of recurrent states.
    struct Share {
        struct Piece {
            program::ValueId id;
            int64_t bytes;
        };
        std::vector<Piece> pieces;
        int64_t bytes = 0;
        void Add(program::ValueId id, int64_t piece_bytes);
    };
    // A page that is being saved.
    struct Unkept {
        PageKey key;
        int64_t place;
        bool is_state;
        std::shared_ptr<std::vector<std::byte>> bytes;
    };
    Status ReadAll(std::span<const Unkept> pages);
    Status CheckFreeSpace(const std::string& path, int64_t bytes) const;
    Status CheckSlot(const SlotFile& file, const Sha256Digest& set, size_t entries) const;
    const Share& ShareOf(const KeyedPage& page) const { return page.is_state ? states_ : pages_; }

    std::string text_;
    std::vector<std::unique_ptr<PageStore>> tiers_;  // fastest first
    std::string slot_dir_;
    int64_t slot_disk_ = 0;
    SlotFiles* slots_ = nullptr;  // one of tiers_; null: no --slot-save-path
    backend::Executable* executable_ = nullptr;
    Sha256Digest shard_{};
    Share pages_, states_;
    std::vector<std::byte> run_;  // a share in transit to the device
};

}  // namespace weft::engine
