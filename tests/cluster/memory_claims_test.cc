// Claims of memory by the jobs of one worker: two loads at once, a job that fills its claim, and a
// job that dies.
#include "cluster/worker/memory_claims.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <memory>

#include "base/deadline.h"

namespace weft::cluster {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// A process that runs `body` with its slot, reports one byte, and stays until it is killed.
class Job {
  public:
    Job(const MemoryClaims& worker, size_t slot, uint64_t ticket,
        const std::function<bool(const MemoryClaims&)>& body) {
        worker.Begin(slot, ticket, "10.0.0.1:40312");
        int ends[2];
        EXPECT_EQ(::pipe(ends), 0);
        const std::string word = worker.WordOf(slot);
        pid_ = ::fork();
        if (pid_ == 0) {
            const auto claims = MemoryClaims::Open(word);
            const char good = claims.ok() && body(*claims) ? 'y' : 'n';
            [[maybe_unused]] const ssize_t put = ::write(ends[1], &good, 1);
            while (true) ::pause();
        }
        ::close(ends[1]);
        char good = 0;
        EXPECT_EQ(::read(ends[0], &good, 1), 1);
        ::close(ends[0]);
        good_ = good == 'y';
    }
    ~Job() { Kill(true); }
    bool good() const { return good_; }
    void Kill(bool reap) {
        if (pid_ == 0) return;
        ::kill(pid_, SIGKILL);
        siginfo_t info;
        ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | (reap ? 0 : WNOWAIT));
        if (reap) pid_ = 0;
    }

  private:
    pid_t pid_ = 0;
    bool good_ = false;
};

MemoryNeed Claim(const MemoryClaims& claims, uint64_t needed_mib, uint64_t free_mib,
                 const std::string& memory = "", bool resident = true) {
    MemoryNeed need{memory, needed_mib * kMiB, free_mib * kMiB, resident};
    const Status status = claims.Claim({&need, 1});
    EXPECT_TRUE(status.ok()) << status.error().message;
    return need;
}

bool Fits(const MemoryNeed& need) {
    return need.needed_bytes + need.claimed_bytes <= need.free_bytes;
}

class MemoryClaim : public ::testing::Test {
  protected:
    // This process is the job in slot 0.
    void SetUp() override {
        worker_.Begin(0, 7, "10.0.0.9:1");
        own_ = MemoryClaims::Open(worker_.WordOf(0)).value();
    }
    MemoryClaims worker_ = MemoryClaims::Make().value();
    MemoryClaims own_;
};

TEST_F(MemoryClaim, CountsWhatAnotherJobHasNotFilledYet) {
    EXPECT_EQ(Claim(own_, 10, 1000).claimed_bytes, 0u);
    Job other(worker_, 1, 8, [](const MemoryClaims& claims) {
        const MemoryNeed need = Claim(claims, 600, 1000);
        // (What this process holds, the claim of the other one counts.)
        return Fits(need) && need.claimed_bytes <= 10 * kMiB;
    });
    EXPECT_TRUE(other.good());
    const MemoryNeed need = Claim(own_, 500, 1000);
    EXPECT_FALSE(Fits(need));
    EXPECT_LE(need.claimed_bytes, 600 * kMiB);
    EXPECT_GE(need.claimed_bytes, 590 * kMiB);
    EXPECT_NE(need.claimants.find(" of 10.0.0.1:40312, for "), std::string::npos) << need.claimants;
    EXPECT_TRUE(Fits(Claim(own_, 390, 1000)));
    EXPECT_TRUE(Fits(Claim(own_, 900, 1000, "vulkan:0", false))) << "another memory";
}

TEST_F(MemoryClaim, AFilledClaimDoesNotCount) {
    Job other(worker_, 1, 8, [](const MemoryClaims& claims) {
        const bool fits = Fits(Claim(claims, 64, 1000));
        void* const pages = ::mmap(nullptr, 64 * kMiB, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        return fits && pages != MAP_FAILED;
    });
    EXPECT_TRUE(other.good());
    EXPECT_LE(Claim(own_, 10, 1000).claimed_bytes, 8 * kMiB);
}

// The limit of the environment is above what all jobs hold, filled or not.
TEST_F(MemoryClaim, AFilledClaimCountsBelowTheUsersLimit) {
    ::setenv("WEFT_MEMORY_MIB", "1000", 1);
    Job other(worker_, 1, 8, [](const MemoryClaims& claims) {
        const bool fits = Fits(Claim(claims, 64, 1000));
        ::mmap(nullptr, 64 * kMiB, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        return fits;
    });
    EXPECT_TRUE(other.good());
    const MemoryNeed need = Claim(own_, 10, 1000);
    ::unsetenv("WEFT_MEMORY_MIB");
    EXPECT_GE(need.claimed_bytes, 64 * kMiB);
}

TEST_F(MemoryClaim, DeviceMemoryCountsUntilTheJobHasLoaded) {
    const auto job = [&](size_t slot, bool loaded) {
        return std::make_unique<Job>(worker_, slot, slot, [=](const MemoryClaims& claims) {
            Claim(claims, 300, 1000, "vulkan:0", false);
            if (loaded) claims.NoteLoaded();
            return true;
        });
    };
    const auto one = job(1, false), two = job(2, true);
    EXPECT_EQ(Claim(own_, 10, 1000, "vulkan:0", false).claimed_bytes, 300 * kMiB);
}

TEST_F(MemoryClaim, NothingOutlivesAKilledJob) {
    const auto claim = [](const MemoryClaims& claims) { return Fits(Claim(claims, 600, 1000)); };
    Job other(worker_, 1, 8, claim);
    EXPECT_FALSE(Fits(Claim(own_, 500, 1000)));
    other.Kill(false);  // a zombie, before its worker has noticed
    EXPECT_TRUE(Fits(Claim(own_, 500, 1000)));
    own_.Release();
    other.Kill(true);
    worker_.Clear(1);
    Job next(worker_, 1, 9, claim);
    EXPECT_TRUE(next.good());
}

// A job that does not fit claims nothing, and neither does one that has given up.
TEST_F(MemoryClaim, OnlyWhatFitsIsClaimed) {
    EXPECT_FALSE(Fits(Claim(own_, 2000, 1000)));
    const auto free = [](const MemoryClaims& claims) {
        return Claim(claims, 10, 1000).claimed_bytes == 0;
    };
    EXPECT_TRUE(Job(worker_, 1, 8, free).good());
    EXPECT_TRUE(Fits(Claim(own_, 600, 1000)));
    EXPECT_FALSE(Job(worker_, 1, 8, free).good());
    own_.Release();
    EXPECT_TRUE(Job(worker_, 1, 8, free).good());
}

// Ranks of one job add up their needs themselves.
TEST_F(MemoryClaim, ARankOfTheSameJobIsNoOtherJob) {
    Job same(worker_, 1, 7,
             [](const MemoryClaims& claims) { return Fits(Claim(claims, 600, 1000)); });
    EXPECT_EQ(Claim(own_, 500, 1000).claimed_bytes, 0u);
}

TEST_F(MemoryClaim, AWrongWordIsAnError) {
    for (const std::string word : {"", "x", "/dev/null:99", "/dev/null:", "/dev/null:1x"}) {
        const auto opened = MemoryClaims::Open(word);
        ASSERT_FALSE(opened.ok()) << word;
        EXPECT_EQ(opened.error().code, ErrorCode::kUsage) << word;
    }
    EXPECT_EQ(MemoryClaims::Open("/no/such/file:1").error().code, ErrorCode::kIo);
    MemoryNeed need{"", 5, 10};
    EXPECT_TRUE(MemoryClaims().Claim({&need, 1}).ok());
    EXPECT_EQ(need.claimed_bytes, 0u);
}

}  // namespace
}  // namespace weft::cluster
