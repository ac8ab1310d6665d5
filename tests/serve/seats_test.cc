// If there are too many connections, those of requests with a key stay; places for callers without
// one are divided equally among networks.
#include "serve/http/seats.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "support/http_case.h"

namespace weft::serve {
namespace {

// Connections of a table; they are never looked into.
class Table {
  public:
    Table(size_t most, size_t most_of_network) : seats(most, most_of_network) {}
    // Adds a connection and closes those that are too many; returns it.
    Connection* Join(const std::string& network) {
        Connection* const joined = reinterpret_cast<Connection*>(&names_.emplace_back(network));
        open.insert(joined);
        seats.Add(joined, network);
        Close(joined);
        return joined;
    }
    void Move(Connection* connection, Seat seat) {
        seats.Move(connection, seat);
        Close(nullptr);
    }
    size_t Of(const std::string& network) const {
        return static_cast<size_t>(std::ranges::count_if(open, [&](Connection* c) {
            return *reinterpret_cast<const std::string*>(c) == network;
        }));
    }
    bool Has(Connection* connection) const { return open.contains(connection); }

    Seats seats;
    std::set<Connection*> open;

  private:
    void Close(const Connection* joined) {
        while (Connection* excess = seats.Excess(joined)) {
            ASSERT_NE(seats.SeatOf(excess), Seat::kBusy);
            seats.Remove(excess);
            open.erase(excess);
        }
    }
    std::deque<std::string> names_;
};

TEST(Seats, ANetworkDisplacesItsOwnOldest) {
    Table table(1000, 10);
    Connection* const other = table.Join("other");
    std::vector<Connection*> crowd;
    for (int i = 0; i < 500; ++i) crowd.push_back(table.Join("crowd"));
    EXPECT_EQ(table.Of("crowd"), 10u);
    for (size_t i = 490; i < 500; ++i) EXPECT_TRUE(table.Has(crowd[i])) << i;
    EXPECT_TRUE(table.Has(other));
}

TEST(Seats, TheLargestNetworkLosesWhatOthersNeed) {
    Table table(100, 90);
    for (int i = 0; i < 90; ++i) table.Join("crowd");
    std::vector<Connection*> few;
    for (int i = 0; i < 40; ++i) few.push_back(table.Join(fmt::format("host {}", i)));
    for (Connection* one : few) EXPECT_TRUE(table.Has(one));
    EXPECT_EQ(table.Of("crowd"), 60u);
    // Among networks of one connection each, the oldest connection gives its seat.
    Table many(100, 90);
    std::vector<Connection*> singles;
    for (int i = 0; i < 300; ++i) singles.push_back(many.Join(fmt::format("host {}", i * 7 % 300)));
    for (size_t i = 0; i < 300; ++i) EXPECT_EQ(many.Has(singles[i]), i >= 200) << i;
}

TEST(Seats, RequestsWithAKeyStayAndKeylessCallersAreRead) {
    Table table(100, 1000);
    std::vector<Connection*> busy;
    for (int i = 0; i < 1000; ++i) table.Join("crowd");
    for (int i = 0; i < 100; ++i) {
        busy.push_back(table.Join("crowd"));
        EXPECT_FALSE(table.seats.full());
        table.Move(busy.back(), Seat::kBusy);
    }
    EXPECT_TRUE(table.seats.full());
    for (int i = 0; i < 1000; ++i) table.Join("crowd");
    for (Connection* one : busy) EXPECT_TRUE(table.Has(one));
    EXPECT_EQ(table.open.size(), 100 + Seats::kSpare);
    EXPECT_TRUE(table.Has(table.Join("probe")));
    // A connection with a request closes the oldest connection that is between two requests.
    for (Connection* one : busy) table.Move(one, Seat::kIdle);
    Connection* const late = table.Join("late");
    table.Move(late, Seat::kBusy);
    EXPECT_FALSE(table.Has(busy[0]));
    EXPECT_TRUE(table.Has(busy[1]));
    EXPECT_TRUE(table.Has(late));
}

class HttpSeats : public HttpCase {
  protected:
    static std::string Keyed(const std::string& path) { return Get(path, "x-api-key: alice\r\n"); }
    std::vector<RawClient> Silent(int count, const std::string& bytes = {}) const {
        std::vector<RawClient> clients;
        for (int i = 0; i < count; ++i) {
            clients.push_back(Connect());
            if (!bytes.empty()) clients.back().Send(bytes);
        }
        return clients;
    }
};

TEST_F(HttpSeats, SilentCallersDisplaceNoClient) {
    Start({.limits = {.max_connections = 200, .max_strangers = 50}});
    const auto streaming = [&] {
        RawClient client = Connect();
        client.Send(Keyed("/hold"));
        return client;
    };
    RawClient kept = streaming();
    const auto exchange = TakeHeld();
    RawClient idle = Connect();
    EXPECT_EQ(idle.Ask(Keyed("/echo")).status, 200);
    // Callers that send nothing, a part of a head, or do not read their answers.
    for (const std::string& bytes : {std::string(), std::string("GET /"), Get("/size?4000000")}) {
        const std::vector<RawClient> crowd = Silent(120, bytes);
        EXPECT_EQ(Ask(Get("/echo")).status, 200);
        EXPECT_EQ(Ask(Keyed("/echo")).status, 200);
        EXPECT_LE(server_->stats().connections, 50u + 2 + 1);
    }
    EXPECT_EQ(idle.Ask(Keyed("/echo")).status, 200);
    EXPECT_GE(server_->stats().displaced, 3u * 70);
    exchange->Send(200, {}, "whole");
    EXPECT_EQ(kept.Answer().body, "whole");
    EXPECT_EQ(server_->stats().turned_away, 0u);
}

TEST_F(HttpSeats, WhenAllSeatsAreBusyProbesAreAnswered) {
    Start({.drain_paths = {"/live"}, .retry_after_s = 3, .limits = {.max_connections = 4}});
    std::vector<RawClient> clients;
    std::vector<std::shared_ptr<Exchange>> held;
    for (int i = 0; i < 4; ++i) {
        clients.push_back(Connect());
        clients.back().Send(Keyed("/hold"));
        held.push_back(TakeHeld());
    }
    const std::vector<RawClient> crowd = Silent(150);
    const RawAnswer refused = Ask(Keyed("/echo"));
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.Header("Retry-After"), "3");
    EXPECT_NE(refused.Error(), "");
    EXPECT_EQ(Ask(Get("/live")).status, 200);
    EXPECT_EQ(server_->stats().turned_away, 1u);
    held[0]->Send(200, {}, "done");
    EXPECT_EQ(clients[0].Answer().body, "done");
    EXPECT_EQ(Ask(Keyed("/echo")).status, 200);
}

// Without keys, a request that acts counts as one with a key.
TEST_F(HttpSeats, WithoutKeysPostsStay) {
    Start({.keyless = true, .limits = {.max_connections = 100, .max_strangers = 20}});
    RawClient asked = Connect();
    asked.Send(Post("/hold", "{}"));
    const auto exchange = TakeHeld();
    RawClient idle = Connect();
    EXPECT_EQ(idle.Ask(Post("/echo", "a")).status, 200);
    const std::vector<RawClient> crowd = Silent(100);
    EXPECT_EQ(idle.Ask(Post("/echo", "b")).body, "POST /echo  b");
    exchange->Send(200, {}, "whole");
    EXPECT_EQ(asked.Answer().body, "whole");
}

// If no descriptor is free, the connection of the oldest silent caller is closed.
TEST_F(HttpSeats, CallersAreServedWithoutFreeDescriptors) {
    Start({.limits = {.max_connections = 8192, .max_strangers = 8192}});
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const std::vector<RawClient> crowd = Silent(40);
    ASSERT_TRUE(Until([&] { return server_->stats().connections == 40; }));
    const int lowest_free = ::dup(0);
    ::close(lowest_free);
    // Room for the clients of this test, which share the process, but not for the server's side.
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(lowest_free) + 1;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(Ask(Get("/echo")).status, 200) << i;
    ::setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_GE(server_->stats().displaced, 1u);
}

}  // namespace
}  // namespace weft::serve
