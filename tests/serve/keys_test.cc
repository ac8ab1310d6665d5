// Key files, their reloading, and rate limits.
#include "serve/keys.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "base/deadline.h"
#include "serve/limiter.h"
#include "serve/pool/load_budget.h"
#include "serve/rate_table.h"
#include "support/temp_dir.h"

namespace weft::serve {
namespace {

std::string LineOf(const std::string& name, const std::string& key, KeyLimits limits = {}) {
    return KeyLine(name, key, limits) + "\n";
}

TEST(Keys, ParsesALine) {
    const std::string hash = KeyLine("n", "secret", {}).substr(2);
    // sha256("secret"), by sha256sum
    EXPECT_EQ(hash, "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b");
    std::string upper = hash;
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    const auto ring = KeyRing::Parse(fmt::format("# first\r\n\n  a.b-c_1\t{}  rate=10 tokens=20 "
                                                 "concurrent=3 priority=-5 weight=0.5 # why\r\n{}",
                                                 upper, LineOf("other", "other")),
                                     "f");
    ASSERT_TRUE(ring.ok()) << ring.error().message;
    ASSERT_EQ(ring->keys().size(), 2u);
    const ApiKey* key = ring->Find("secret");
    ASSERT_NE(key, nullptr);
    EXPECT_EQ(key->name, "a.b-c_1");
    EXPECT_EQ(key->limits, (KeyLimits{10, 20, 3, -5, 0.5}));
    ASSERT_NE(ring->Find("other"), nullptr);
    EXPECT_EQ(ring->Find("other")->name, "other");
    EXPECT_EQ(ring->Find("other")->limits, KeyLimits{});
    for (const char* wrong : {"", "Secret", "secret ", "secre", upper.c_str(), hash.c_str()}) {
        EXPECT_EQ(ring->Find(wrong), nullptr) << wrong;
    }
}

TEST(Keys, ErrorsNameTheLineButNotTheKey) {
    const std::string good = LineOf("good", "1");
    const std::string hash = good.substr(5, 64), cut = hash.substr(1);
    const std::string more = KeyLine("name", "2", {});
    const struct {
        std::string line, words;
    } cases[] = {
        {"weft-0123456789", "expected NAME"},
        {"name weft-0123456789", "expected NAME"},
        {fmt::format("name {}", cut), "expected NAME"},
        {fmt::format("name {}g", cut), "expected NAME"},
        {fmt::format("na/me {}", hash), "expected NAME"},
        {fmt::format("{} {}", std::string(65, 'n'), hash), "expected NAME"},
        {KeyLine("good", "2", {}), "occurs twice"},
        {fmt::format("second {}", hash), "another name"},
        {fmt::format("{} rate=ten", more), "rate"},
        {fmt::format("{} rate=-1", more), "rate"},
        {fmt::format("{} rate=1 rate=2", more), "twice"},
        {fmt::format("{} priority=101", more), "priority"},
        {fmt::format("{} weight=nan", more), "weight"},
        {fmt::format("{} weight=0", more), "weight"},
        {fmt::format("{} weft-0123456789", more), "expected rate="},
    };
    for (const auto& bad : cases) {
        SCOPED_TRACE(bad.line);
        const auto ring = KeyRing::Parse(fmt::format("\n{}{}\n", good, bad.line), "keys.txt");
        ASSERT_FALSE(ring.ok());
        EXPECT_EQ(ring.error().message.rfind("keys.txt:3: ", 0), 0u) << ring.error().message;
        EXPECT_NE(ring.error().message.find(bad.words), std::string::npos) << ring.error().message;
        EXPECT_EQ(ring.error().message.find("0123456789"), std::string::npos);
    }
    std::string many;
    for (size_t i = 0; i <= KeyRing::kMostKeys; ++i) {
        many += LineOf(fmt::format("n{}", i), std::to_string(i));
    }
    EXPECT_FALSE(KeyRing::Parse(many, "many").ok());
}

TEST(Keys, ReloadOnChangeAndStayOnError) {
    test::TempDir dir;
    const std::string path = dir / "keys";
    const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
    EXPECT_FALSE(KeyStore::Open(path).ok());
    write(LineOf("a", "one"));
    ::chmod(path.c_str(), 0600);
    int64_t now_ns = NowNs();
    virtual_clock_ns = &now_ns;
    auto opened = KeyStore::Open(path);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    KeyStore& store = **opened;
    const auto before = store.ring();

    write(LineOf("a", "one") + LineOf("b", "two"));
    now_ns += 999'000'000;
    EXPECT_EQ(store.ring()->Find("two"), nullptr) << "looked more often than once a second";
    now_ns += 2'000'000;
    EXPECT_NE(store.ring()->Find("two"), nullptr);
    EXPECT_EQ(before->Find("two"), nullptr);  // an old ring is immutable

    write("broken\n");
    now_ns += 1'100'000'000;
    EXPECT_NE(store.ring()->Find("one"), nullptr);
    const Status bad = store.Reload();
    ASSERT_FALSE(bad.ok());
    EXPECT_NE(bad.error().message.find("keys:1: "), std::string::npos) << bad.error().message;
    EXPECT_NE(store.ring()->Find("one"), nullptr);

    ASSERT_EQ(::unlink(path.c_str()), 0);
    now_ns += 1'100'000'000;
    EXPECT_NE(store.ring()->Find("one"), nullptr);
    write(LineOf("c", "three"));
    EXPECT_TRUE(store.Reload().ok());  // takes effect at once
    EXPECT_NE(store.ring()->Find("three"), nullptr);
    EXPECT_EQ(store.ring()->Find("one"), nullptr);
    virtual_clock_ns = nullptr;
}

TEST(Keys, ComeInEitherHeader) {
    const auto presented = [](Headers headers) {
        HttpRequest request;
        request.headers = std::move(headers);
        return std::string(PresentedKey(request));
    };
    EXPECT_EQ(presented({{"authorization", "bearer k1"}}), "k1");
    EXPECT_EQ(presented({{"Authorization", "Bearer   k1"}, {"X-API-Key", "k2"}}), "k1");
    EXPECT_EQ(presented({{"X-API-Key", "k2"}}), "k2");
    EXPECT_EQ(presented({{"Authorization", "Basic k1"}}), "");
    EXPECT_EQ(presented({{"Authorization", "Bearer "}}), "");
    EXPECT_EQ(presented({}), "");
    std::string key = NewApiKey();
    EXPECT_EQ(key.size(), 53u);
    EXPECT_NE(key, NewApiKey());
}

class Limits : public ::testing::Test {
  protected:
    void SetUp() override { virtual_clock_ns = &now_ns_; }
    void TearDown() override { virtual_clock_ns = nullptr; }
    void Pass(int64_t ms) { now_ns_ += ms * 1'000'000; }
    // Admits and runs a request of so many tokens.
    Limiter::Admission Run(const ApiKey& key, int64_t tokens) {
        Limiter::Admission admission = limiter_.Admit(key, tokens);
        if (admission.ticket) admission.ticket->Settle(tokens);
        return admission;
    }
    static std::string Of(const Limiter::Admission& admission, const std::string& name) {
        for (const auto& [key, value] : admission.headers) {
            if (key == name) return value;
        }
        return "absent";
    }

    int64_t now_ns_ = 1'000'000'000;
    Limiter limiter_;
};

TEST_F(Limits, WithoutLimitsAdmitsEverything) {
    const ApiKey key{"free", {}, {}};
    std::vector<Limiter::Ticket> tickets;
    for (int i = 0; i < 100; ++i) {
        auto admission = limiter_.Admit(key, 1'000'000);
        ASSERT_TRUE(admission.ticket);
        EXPECT_TRUE(admission.headers.empty());
        tickets.push_back(std::move(*admission.ticket));
    }
    EXPECT_EQ(limiter_.running("free"), 100);
    tickets.clear();
    EXPECT_EQ(limiter_.running("free"), 0);
}

TEST_F(Limits, RequestsAMinute) {
    const ApiKey key{"a", {}, {.requests_per_minute = 3}};
    for (int left = 2; left >= 0; --left) {
        const auto admission = Run(key, 0);
        ASSERT_TRUE(admission.ticket);
        EXPECT_EQ(Of(admission, "x-ratelimit-limit-requests"), "3");
        EXPECT_EQ(Of(admission, "x-ratelimit-remaining-requests"), std::to_string(left));
    }
    Pass(5'000);  // a quarter of the time for one request
    const auto refused = limiter_.Admit(key, 0);
    EXPECT_FALSE(refused.ticket);
    EXPECT_EQ(refused.retry_after_ms, 15'000);
    EXPECT_EQ(Of(refused, "Retry-After"), "15");
    EXPECT_EQ(Of(refused, "x-ratelimit-reset-requests"), "55s");
    EXPECT_EQ(refused.code, "rate_limit_exceeded");
    EXPECT_NE(refused.message.find("try again in 15s"), std::string::npos) << refused.message;
    // another key's bucket
    EXPECT_TRUE(limiter_.Admit({"b", {}, {.requests_per_minute = 3}}, 0).ticket);
    Pass(15'000);
    EXPECT_TRUE(Run(key, 0).ticket);
    EXPECT_FALSE(limiter_.Admit(key, 0).ticket);
    Pass(3'600'000);  // an hour still saves up one minute's worth
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(Run(key, 0).ticket);
    EXPECT_FALSE(limiter_.Admit(key, 0).ticket);
}

// Requests that were cancelled before they ran, or were refused later.
TEST_F(Limits, ReturnsChargesOfRequestsThatDidNotRun) {
    const ApiKey key{"a", {}, {.requests_per_minute = 3, .tokens_per_minute = 6'000}};
    for (int i = 0; i < 13'000; ++i) ASSERT_TRUE(limiter_.Admit(key, 5'000).ticket) << i;
    for (int i = 0; i < 13'000; ++i) {
        auto admission = limiter_.Admit(key, 0);
        ASSERT_TRUE(admission.ticket) << i;
        ASSERT_FALSE(limiter_.Charge(key, *admission.ticket, 6'000).refused());
        ASSERT_TRUE(limiter_.Charge(key, *admission.ticket, 1).refused());
    }
    const auto whole = Run(key, 5'000);
    EXPECT_EQ(Of(whole, "x-ratelimit-remaining-requests"), "2");
    EXPECT_EQ(Of(whole, "x-ratelimit-remaining-tokens"), "1000");
    {
        auto moved = limiter_.Admit(key, 1'000);
        Limiter::Ticket ticket = std::move(*moved.ticket);
        moved.ticket.reset();
        EXPECT_EQ(Of(limiter_.Admit(key, 0), "x-ratelimit-remaining-requests"), "0");
        ticket.Settle(900);
    }
    const auto last = Run(key, 100);
    EXPECT_EQ(Of(last, "x-ratelimit-remaining-requests"), "0");
    EXPECT_EQ(Of(last, "x-ratelimit-remaining-tokens"), "0");
    EXPECT_FALSE(limiter_.Admit(key, 0).ticket);
}

TEST_F(Limits, TokensAMinuteAreSettled) {
    const ApiKey key{"a", {}, {.tokens_per_minute = 6'000}};  // 100 a second
    {
        auto first = limiter_.Admit(key, 5'000);
        ASSERT_TRUE(first.ticket);
        EXPECT_EQ(Of(first, "x-ratelimit-remaining-tokens"), "1000");
        const auto refused = limiter_.Admit(key, 2'000);
        EXPECT_FALSE(refused.ticket);
        EXPECT_EQ(refused.retry_after_ms, 10'000);
        EXPECT_EQ(limiter_.running("a"), 1);  // the refused request holds nothing
        first.ticket->Settle(1'000);          // it used fewer than reserved: 5,000 remain
    }
    EXPECT_EQ(limiter_.running("a"), 0);
    EXPECT_TRUE(Run(key, 5'000).ticket);
    // A request above one minute's worth waits for a full bucket and leaves a debt.
    EXPECT_EQ(limiter_.Admit(key, 9'000).retry_after_ms, 60'000);
    Pass(60'000);
    EXPECT_TRUE(Run(key, 9'000).ticket);
    EXPECT_EQ(limiter_.Admit(key, 100).retry_after_ms, 31'000);
    EXPECT_EQ(limiter_.Admit(key, -5).retry_after_ms, 30'000);
}

// A request counts from its start; its tokens count once they are known.
TEST_F(Limits, TokensAreChargedLater) {
    const ApiKey key{"a", {}, {.requests_per_minute = 3, .tokens_per_minute = 6'000}};
    auto first = limiter_.Admit(key, 0);
    ASSERT_TRUE(first.ticket);
    EXPECT_EQ(Of(first, "x-ratelimit-remaining-tokens"), "6000");
    const auto charged = limiter_.Charge(key, *first.ticket, 5'000);
    EXPECT_FALSE(charged.refused());
    EXPECT_EQ(Of(charged, "x-ratelimit-remaining-tokens"), "1000");
    EXPECT_EQ(Of(charged, "x-ratelimit-remaining-requests"), "2");
    auto second = limiter_.Admit(key, 0);
    ASSERT_TRUE(second.ticket);
    const auto refused = limiter_.Charge(key, *second.ticket, 2'000);
    EXPECT_EQ(refused.retry_after_ms, 10'000);
    EXPECT_EQ(Of(refused, "Retry-After"), "10");
    EXPECT_NE(refused.message.find("may use 6000 tokens per minute"), std::string::npos);
    second.ticket.reset();  // returns the request, but no tokens, since none were charged
    EXPECT_EQ(limiter_.running("a"), 1);
    first.ticket->Settle(1'000);
    auto third = limiter_.Admit(key, 0);
    ASSERT_TRUE(third.ticket) << third.message;
    EXPECT_FALSE(limiter_.Charge(key, *third.ticket, 5'000).refused());
    EXPECT_EQ(Of(limiter_.Admit(key, 0), "x-ratelimit-remaining-requests"), "0");
}

TEST_F(Limits, ConcurrentRequests) {
    const ApiKey key{"a", {}, {.concurrent = 2}};
    auto first = limiter_.Admit(key, 0);
    auto second = limiter_.Admit(key, 0);
    const auto third = limiter_.Admit(key, 0);
    EXPECT_FALSE(third.ticket);
    EXPECT_EQ(third.code, "concurrency_limit_exceeded");
    EXPECT_EQ(Of(third, "Retry-After"), "1");
    Limiter::Ticket moved = std::move(*first.ticket);
    first.ticket.reset();
    EXPECT_FALSE(limiter_.Admit(key, 0).ticket) << "a moved ticket counts once";
    moved = std::move(*second.ticket);  // releases the first one
    EXPECT_TRUE(limiter_.Admit(key, 0).ticket);
}

TEST_F(Limits, ChangeWithTheFile) {
    ASSERT_TRUE(Run({"a", {}, {}}, 100).ticket);
    ASSERT_TRUE(Run({"a", {}, {.requests_per_minute = 2}}, 0).ticket);  // begins with a full bucket
    EXPECT_EQ(Of(Run({"a", {}, {.requests_per_minute = 2}}, 0), "x-ratelimit-remaining-requests"),
              "0");
    EXPECT_FALSE(limiter_.Admit({"a", {}, {.requests_per_minute = 1}}, 0).ticket);
    EXPECT_TRUE(limiter_.Admit({"a", {}, {}}, 0).ticket);
}

TEST(LimitsAcrossThreads, AreCountedCorrectly) {
    Limiter limiter;
    const ApiKey key{"a", {}, {.concurrent = 3}};
    std::atomic<int> running{0}, most{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < 500; ++round) {
                const auto admission = limiter.Admit(key, 1);
                if (!admission.ticket) continue;
                const int now = ++running;
                for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
                }
                --running;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LE(most, 3);
    EXPECT_EQ(limiter.running("a"), 0);
}

TEST(Durations, OpenAiFormat) {
    EXPECT_EQ(DurationText(0), "0ms");
    EXPECT_EQ(DurationText(120), "120ms");
    EXPECT_EQ(DurationText(1'000), "1s");
    EXPECT_EQ(DurationText(59'001), "1m0s");
    EXPECT_EQ(DurationText(360'000), "6m0s");
    EXPECT_EQ(DurationText(3'661'000), "1h1m1s");
}

// The processes of several models share one table.
TEST(RateTable, ProcessesShareTheRatesOfAKey) {
    const auto table = RateTable::Share();
    ASSERT_TRUE(table.ok()) << table.error().message;
    const ApiKey key{.name = "ann", .digest = {}, .limits = {.requests_per_minute = 3}};
    const auto spend = [&] {
        auto own = RateTable::Attach(Fd(::dup((*table)->fd())));
        if (!own.ok()) return false;
        Limiter limiter(*std::move(own));
        Limiter::Admission admission = limiter.Admit(key, 0);
        if (admission.ticket) admission.ticket->Settle(0);
        return admission.ticket.has_value();
    };
    for (int i = 0; i < 2; ++i) {
        const pid_t pid = ::fork();
        if (pid == 0) ::_exit(spend() ? 0 : 1);
        int status = -1;
        ::waitpid(pid, &status, 0);
        EXPECT_EQ(status, 0);
    }
    Limiter front(*table);
    // A process that only forwards a request counts it as running, but charges nothing.
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(front.Enter(key).ticket.has_value());
    EXPECT_TRUE(spend());
    EXPECT_FALSE(front.Enter(key).ticket.has_value());
    EXPECT_FALSE(spend());
    EXPECT_EQ(front.running("ann"), 0);
}

// A process that dies while it uses the table leaves it usable.
TEST(RateTable, KilledProcessHoldsNoLock) {
    const auto table = RateTable::Share();
    ASSERT_TRUE(table.ok()) << table.error().message;
    const pid_t pid = ::fork();
    if (pid == 0) (*table)->With("ann", [](Rates&, OpenCharges&) { ::_exit(0); });
    int status = -1;
    ::waitpid(pid, &status, 0);
    bool used = false;
    (*table)->With("ann", [&](Rates& rates, OpenCharges&) { used = rates.requests.limit == 0; });
    EXPECT_TRUE(used);
}

// The charge of a killed process for a running request is given back; settled charges stay.
TEST(RateTable, OpenChargesOfAKilledProcessAreGivenBack) {
    const auto table = RateTable::Share();
    ASSERT_TRUE(table.ok()) << table.error().message;
    const ApiKey key{.name = "ann",
                     .digest = {},
                     .limits = {.requests_per_minute = 100, .tokens_per_minute = 1000}};
    const auto levels = [&] {
        std::pair<int64_t, int64_t> left;
        (*table)->With("ann", [&](Rates& rates, OpenCharges&) {
            left = {rates.requests.remaining(), rates.tokens.remaining()};
        });
        return left;
    };
    const pid_t pid = ::fork();
    if (pid == 0) {
        Limiter limiter(*table);
        auto ended = limiter.Admit(key, 300), runs = limiter.Admit(key, 0);
        ended.ticket->Settle(100);
        limiter.Charge(key, *runs.ticket, 800);
        ::_exit(0);
    }
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
    (*table)->GiveBackOfEnded();
    EXPECT_LT(levels().second, 200) << "the process is not reaped yet";
    ::waitpid(pid, nullptr, 0);
    (*table)->GiveBackOfEnded();
    EXPECT_EQ(levels().first, 99);
    EXPECT_NEAR(static_cast<double>(levels().second), 900, 2) << "and what refilled meanwhile";
    Limiter own(*table);
    { const auto admission = own.Admit(key, 400); }
    EXPECT_GE(levels().second, 899) << "a dropped ticket";
}

TEST(RateTable, ManyKeysReplaceTheOldest) {
    RateTable table;
    for (int i = 0; i < 50'000; ++i) {
        table.With("key" + std::to_string(i),
                   [&](Rates& rates, OpenCharges&) { rates.requests.level = i; });
    }
    table.With("key49999",
               [](Rates& rates, OpenCharges&) { EXPECT_EQ(rates.requests.level, 49'999); });
}

TEST(LoadBudget, LoadsTakeAShareOfTheTime) {
    LoadBudget budget(0.5);
    EXPECT_EQ(budget.WaitMs("ann", 1000), 0);
    budget.Charge("ann", 59'999, 1000);
    EXPECT_EQ(budget.WaitMs("ann", 1000), 0);
    budget.Charge("ann", 10'000, 1000);
    const int64_t wait_ms = budget.WaitMs("ann", 1000);
    EXPECT_NEAR(static_cast<double>(wait_ms), 20'000, 10);
    EXPECT_EQ(budget.WaitMs("bob", 1000), 0);
    EXPECT_GT(budget.WaitMs("ann", 1000 + wait_ms - 100), 0);
    EXPECT_EQ(budget.WaitMs("ann", 1000 + wait_ms), 0);
    // At most two minutes' share is saved.
    budget.Charge("ann", 61'000, 3'600'000);
    EXPECT_GT(budget.WaitMs("ann", 3'600'000), 0);
    // The charge for a model that did not load is given back.
    budget.Charge("ann", -2'000, 3'600'000);
    EXPECT_EQ(budget.WaitMs("ann", 3'600'000), 0);
    LoadBudget none(1);
    none.Charge("ann", 1'000'000, 0);
    EXPECT_EQ(none.WaitMs("ann", 0), 0);
}

}  // namespace
}  // namespace weft::serve
