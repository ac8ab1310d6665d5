// Machine files, and clusters made of them.
#include "plan/machine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "plan/train_links.h"
#include "support/temp_dir.h"

namespace weft::plan {
namespace {

Library OpenLibrary() {
    auto library = Library::Open();
    EXPECT_TRUE(library.ok()) << library.error().message;
    return *std::move(library);
}

std::string FileWith(const std::string& more, const std::string& bandwidth = "100 GB/s") {
    const auto figure = [](const std::string& is) {
        return R"({"is": ")" + is + R"(", "mark": "measured", "source": "here"})";
    };
    return R"({"memory": )" + figure("64 GiB") + R"(, "bandwidth": )" + figure(bandwidth) +
           R"(, "compute": )" + figure("2 TFLOP/s") + more + "}";
}

std::string WattsOf(const std::string& idle, const std::string& busy) {
    const std::string rest = R"(", "mark": "guessed", "source": "x"})";
    return R"(, "watts_idle": {"is": ")" + idle + rest + R"(, "watts_busy": {"is": ")" + busy +
           rest;
}

// Sums, quotients and casts of what is taken stay numbers.
TEST(Machine, QuantitiesHaveRanges) {
    struct Case {
        Unit unit;
        std::vector<const char*> good, bad;
    };
    const Case cases[] = {
        {Unit::kBytes, {"1 MB", "1e6 TB"}, {"0.5 B", "999 KB", "1e24 B", "2e6 TiB"}},
        {Unit::kRate, {"0.001 MB/s"}, {"1e-320 MB/s", "0 GB/s", "1e9 TB/s"}},
        {Unit::kCompute, {"1 GFLOP/s"}, {"1e-9 GFLOP/s", "1e24 GFLOP/s"}},
        {Unit::kTime, {"0 us", "1 s", "5m", "5 min", "2 h"}, {"1e12 s", "-1 s", "1 d"}},
        {Unit::kSpeed, {"5tok/s"}, {"-5tok/s", "0tok/s", "5"}},
        {Unit::kShare, {"100 %", "0.5"}, {"0", "101 %", "1e-30"}},
        {Unit::kPrice, {"0 EUR"}, {"8000 USD", "$8000", "1e30 EUR"}}};
    for (const auto& [unit, good, bad] : cases) {
        for (const char* text : good) EXPECT_TRUE(ParseQuantity(text, unit).ok()) << text;
        for (const char* text : bad) {
            const auto value = ParseQuantity(text, unit);
            ASSERT_FALSE(value.ok()) << text;
            EXPECT_EQ(value.error().code, ErrorCode::kUsage) << text;
        }
    }
    const auto machine = ParseMachine(FileWith(WattsOf("80 W", "80 W")), "box", "box.json");
    EXPECT_TRUE(machine.ok()) << machine.error().message;
}

TEST(Machine, FiguresHaveUnits) {
    const auto machine = ParseMachine(FileWith(""), "box", "box.json");
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    EXPECT_EQ(machine->memory.value, 64 * 0x1p30);
    EXPECT_EQ(machine->bandwidth.value, 100e9);
    EXPECT_EQ(machine->sustained_bytes_per_s(), 100e9);
    EXPECT_EQ(machine->compute.value, 2e12);
    EXPECT_EQ(machine->devices, 1);
    EXPECT_FALSE(machine->watts_busy);
    const auto brief =
        ParseMachine(FileWith(R"(, "price": "90 EUR, guessed: offers, of 2025: late")"), "b", "b");
    ASSERT_TRUE(brief.ok()) << brief.error().message;
    EXPECT_EQ(brief->price->value, 90);
    EXPECT_EQ(brief->price->mark, Mark::kGuessed);
    EXPECT_EQ(brief->price->source, "offers, of 2025: late");
    EXPECT_EQ(*ParseQuantity("100 Gbit/s", Unit::kRate), 12.5e9);
    EXPECT_EQ(*ParseQuantity("5m", Unit::kTime), 300);
    EXPECT_EQ(*ParseQuantity("40%", Unit::kShare), 0.4);
    EXPECT_DOUBLE_EQ(*ParseQuantity("5 us", Unit::kTime), 5e-6);
}

TEST(Machine, InvalidFilesAreNamed) {
    const std::pair<std::string, const char*> cases[] = {
        {"[]", "expected a JSON object"},
        {"{", "line 1"},
        {FileWith(R"(, "colour": "red")"), "unknown key 'colour'; known are about"},
        {FileWith("", "100 GB"),
         "bandwidth.is: '100 GB' is not a quantity; expected a number and "
         "one of the units MB/s, GB/s"},
        {FileWith("", "0 GB/s"), "out of range"},
        {FileWith("", "fast"), "'fast' is not a quantity"},
        {FileWith("", "1e999 GB/s"), "is not a quantity"},
        {FileWith(R"(, "known_by": "1002:1586")"), "known_by: expected a list of PCI ids"},
        {FileWith(R"(, "known_by": ["1002:15G6"])"), "known_by: expected a list of PCI ids"},
        {FileWith(R"(, "known_by": [7])"), "known_by: expected a list of PCI ids"},
        {FileWith(R"(, "devices": 0)"), "devices: expected a whole number from 1 to 1024"},
        {FileWith(R"(, "tiers": {"rack": {}})"), "tiers: unknown key 'rack'"},
        {FileWith(R"(, "tiers": {"host": {"ranks": 8}})"), "tiers.host: bandwidth: missing"},
        {FileWith(R"(, "price": {"is": "1 EUR", "mrk": 1})"),
         "price: unknown key 'mrk'; known are is, mark, source"},
        {FileWith(R"(, "watts_busy": 100)"),
         "watts_busy: expected \"QUANTITY, MARK: SOURCE\", such as"},
        {FileWith(R"(, "watts_busy": "9 W")"),
         "watts_busy: '9 W'; expected \"QUANTITY, MARK: SOURCE\", such as"},
        {FileWith(R"(, "watts_busy": "9 W, sure: x")"),
         "watts_busy.mark: 'sure'; expected measured"},
        {FileWith(R"(, "watts_busy": {"is": "9 W", "mark": "sure", "source": "x"})"),
         "watts_busy.mark: 'sure'; expected measured, fitted, data sheet or guessed"},
        {FileWith(R"(, "watts_busy": {"is": "9 W", "mark": "guessed"})"),
         "watts_busy.source: expected where it is from"},
        {FileWith(R"(, "price": {"is": "9 W", "mark": "guessed", "source": "x"})"),
         "one of the units EUR"},
        {FileWith(R"(, "price": {"is": "9 USD", "mark": "guessed", "source": "x"})"),
         "price.is: '9 USD': prices are in EUR"},
        {FileWith("", "1e-320 MB/s"),
         "'1e-320 MB/s' is out of range; expected 0.001 MB/s to 1e6 TB/s"},
        {FileWith("", "1e19 MB/s"), "out of range"},
        {FileWith(WattsOf("90 W", "80 W")), "watts_idle: more than watts_busy"},
        {R"({"about": "nothing"})", "memory: missing"},
    };
    for (const auto& [text, words] : cases) {
        const auto machine = ParseMachine(text, "box", "box.json");
        ASSERT_FALSE(machine.ok()) << text;
        EXPECT_EQ(machine.error().code, ErrorCode::kUsage) << text;
        EXPECT_TRUE(machine.error().message.starts_with("box.json: ")) << machine.error().message;
        EXPECT_NE(machine.error().message.find(words), std::string::npos)
            << machine.error().message;
    }
}

// All machines of the table are sound. Those with a price are offered.
TEST(Machine, AllAreThere) {
    const Library library = OpenLibrary();
    EXPECT_GE(library.MachineNames().size(), 200u);
    int offered = 0;
    for (const std::string& name : library.MachineNames()) {
        const auto machine = library.FindMachine(name);
        ASSERT_TRUE(machine.ok()) << machine.error().message;
        EXPECT_TRUE(library.FindWire(machine->wire).ok()) << name;
        offered += machine->price.has_value();
        ASSERT_TRUE(machine->watts_idle && machine->watts_busy) << name;
        EXPECT_LT(machine->watts_idle->value, machine->watts_busy->value) << name;
    }
    EXPECT_GE(offered, 60);
    for (const std::string& name : library.WireNames()) {
        EXPECT_TRUE(library.FindWire(library.FindWire(name)->instead).ok()) << name;
    }
    EXPECT_EQ(library.FindWire("HDR")->name, "ib-200g");
}

// Two cards in a desktop, half the cards of a host.
TEST(Cluster, HostsMayHaveOtherDevices) {
    const Library library = OpenLibrary();
    const auto pair = library.ParseCluster("2xrtx-3090:2,10gbe");
    ASSERT_TRUE(pair.ok()) << pair.error().message;
    EXPECT_EQ(pair->ranks(), 4);
    const auto one = library.ParseCluster("2xrtx-3090,10gbe");
    EXPECT_EQ(pair->hosts[0].price->value, 2 * one->hosts[0].price->value - 600) << "one desktop";
    EXPECT_EQ(*one->price(), 2 * (one->hosts[0].price->value + one->wire.price->value));
    EXPECT_LT(pair->Between(0, 1).latency_s, pair->Between(1, 2).latency_s);
    const auto half = library.ParseCluster("h100:4");
    ASSERT_TRUE(half.ok());
    EXPECT_EQ(half->Between(0, 3).bytes_per_s, 14e9) << "by way of the host";
    for (const char* wrong : {"rtx-3090:0", "rtx-3090:999", "rtx-3090:-1", "rtx-3090:3.5",
                              "strix-halo,rtx-3090:24GB"}) {
        const auto refused = library.ParseCluster(wrong);
        ASSERT_FALSE(refused.ok()) << wrong;
        EXPECT_NE(refused.error().message.find("expected 1 to 64 devices in a host"),
                  std::string::npos)
            << refused.error().message;
    }
}

// A colon in a folder's name is not followed by a number of devices.
TEST(Cluster, PathsMayHaveColons) {
    const Library library = OpenLibrary();
    const test::TempDir dir;
    std::filesystem::create_directory(dir / "lab:2");
    const std::string file = dir / "lab:2/box";
    std::ofstream(file) << FileWith("");
    const auto one = library.ParseCluster(file), two = library.ParseCluster(file + ":2");
    ASSERT_TRUE(one.ok()) << one.error().message;
    EXPECT_EQ(one->hosts[0].kind, file);
    EXPECT_EQ(one->ranks(), 1);
    ASSERT_TRUE(two.ok()) << two.error().message;
    EXPECT_EQ(two->ranks(), 2);
}

TEST(Library, WrongTablesAreNamed) {
    const std::string tail = R"(}}])";
    const std::string head = R"([{"columns": ["bandwidth", "latency"],
        "sources": {"bandwidth": "guessed: x", "latency": "guessed: x"}, "rows": {)";
    const std::string row = R"(": ["1 GB/s", "5 us", {"also": ["edr"]}])";
    const auto open = [](const std::string& wires) {
        const EmbeddedFile file{"machines", "wires", wires};
        return Library::Open({&file, 1});
    };
    const auto sound = open(head + "\"a" + row + tail);
    ASSERT_TRUE(sound.ok()) << sound.error().message;
    EXPECT_EQ(sound->WireNames(), (std::vector<std::string>{"a", "edr"}));
    const std::string again = R"(}}, {"columns": [], "sources": {}, "rows": {"a": []}}])";
    for (const auto& [text, said] : std::initializer_list<std::pair<std::string, const char*>>{
             {head + "\"a" + row + again,
              "machines/wires.json: a: the file has the name 'a' twice"},
             {head + "\"a" + row + ", \"b" + row + tail,
              "machines/wires.json: b: the file has the name 'edr' twice"},
             {head + "\"a" + row + ", \"edr\": [\"1 GB/s\", \"5 us\"]" + tail,
              "machines/wires.json: edr: the file has the name 'edr' twice"},
             {head + "\"a" + row + ", \"a" + row + tail, "machines/wires.json: line"},
             {head + R"("a": ["1 GB/s"])" + tail,
              "machines/wires.json: a: 1 cells; expected 2, one for each column"},
             {head + R"("a": ["1 GB/s", "5 us", "6 us"])" + tail,
              "machines/wires.json: a: 3 cells; expected 2"},
             {head + R"("a": ["1 GB/s", null])" + tail,
              "machines/wires.json: a: latency: missing"}}) {
        const auto wrong = open(text);
        ASSERT_FALSE(wrong.ok()) << text;
        EXPECT_TRUE(wrong.error().message.starts_with(said)) << wrong.error().message;
    }
}

TEST(Machine, IsKnownByItsDevices) {
    const Library library = OpenLibrary();
    EXPECT_EQ(library.MachineWith("1002:1586", 1)->name, "strix-halo");
    EXPECT_FALSE(library.MachineWith("1002:1586", 2));
    EXPECT_FALSE(library.MachineWith("1002:1587", 1));
    EXPECT_FALSE(library.MachineWith("", 1));
    const auto half = library.MachineWith("10de:2330", 4);
    ASSERT_TRUE(half.has_value());
    EXPECT_EQ(half->name, "h100");
    EXPECT_EQ(half->devices, 4);
    EXPECT_FALSE(library.MachineWith("10de:2330", 9));
    EXPECT_FALSE(library.MachineWith("10de:2330", 0));
}

// A faster port of a kind never carries less or later.
TEST(Link, WiresFollowThePort) {
    const Library library = OpenLibrary();
    for (const auto& [kind, gigabits, name] :
         std::initializer_list<std::tuple<LinkKind, double, const char*>>{
             {LinkKind::kTcp, 1, "1gbe"},
             {LinkKind::kTcp, 10, "10gbe"},
             {LinkKind::kTcp, 100, "tcp"},
             {LinkKind::kRoce, 100, "roce"},
             {LinkKind::kRoce, 200, "roce-200g"},
             {LinkKind::kInfiniBand, 100, "ib-100g"},
             {LinkKind::kThunderbolt, 80, "tb5"}}) {
        const auto wire = WireOf(library, kind, gigabits), known = library.FindWire(name);
        ASSERT_TRUE(wire.ok());
        EXPECT_EQ(wire->name, name);
        EXPECT_EQ(wire->bandwidth.value, known->bandwidth.value);
        EXPECT_EQ(wire->latency.value, known->latency.value);
        double bandwidth = 0, latency = 1;
        for (const double port :
             {0.1, 1.0, 2.5, 3.0, 10.0, 25.0, 40.0, 99.0, 100.0, 200.0, 800.0}) {
            const auto faster = WireOf(library, kind, port);
            EXPECT_GE(faster->bandwidth.value, bandwidth) << port;
            EXPECT_LE(faster->latency.value, latency) << port;
            bandwidth = faster->bandwidth.value;
            latency = faster->latency.value;
        }
    }
    EXPECT_DOUBLE_EQ(WireOf(library, LinkKind::kInfiniBand, 40)->bandwidth.value, 0.4 * 12e9);
}

TEST(Cluster, IsParsed) {
    const Library library = OpenLibrary();
    const auto unlike = library.ParseCluster("2xstrix-halo+1xrtx-4090,tcp");
    ASSERT_TRUE(unlike.ok()) << unlike.error().message;
    EXPECT_EQ(unlike->ranks(), 3);
    EXPECT_FALSE(unlike->alike());
    EXPECT_EQ(unlike->machine_of(2).name, "rtx-4090");
    EXPECT_EQ(unlike->wire.name, "tcp");
    EXPECT_EQ(library.ParseCluster("h100")->ranks(), 8);
    for (const auto& [words, said] : std::initializer_list<std::pair<const char*, const char*>>{
             {"4xstrix-hola,roce",
              "no machine is called 'strix-hola'. The nearest names are strix-halo, "},
             {"rx-7900", "The nearest names are rx-7900-xt, rx-7900-gre, rx-7900-xtx, "},
             {"2xabacus", "no machine is called 'abacus'. The nearest names are "},
             {"ryzen-9-123x",
              "no processor is called 'ryzen-9-123x'. The nearest series are: AMD Ryzen"},
             {"core-i7-99999", "The nearest series are: Intel Core of the 9th generation; "},
             {"ryzen-9-9999x", "The nearest series are: AMD Ryzen 9000, Zen 5; "},
             {"2xthreadripper 9999", "The nearest series are: AMD Threadripper 9000, Zen 5; "},
             {"i7", "The nearest series are: Intel Core of the "},
             {"i5-2500k", "The nearest series are: Intel Core of the "},
             {"2xm3-ultra,10gbe", "'m3-ultra' is a Mac, and Weft runs on Linux only"},
             {"M4 Max", "is a Mac"},
             {"m1-pro", "is a Mac"},
             {"Mac Studio", "is a Mac"},
             {"dgx-spark+m5", "'m5' is a Mac"},
             {"4xstrix-halo,rose", "no wire is called 'rose'. Did you mean 'roce'? There are"},
             {"h100,h1000", "no wire is called 'h1000'"},
             {"0xstrix-halo", "expected 1 to"},
             {"99999999999xstrix-halo", "expected 1 to"},
             {"", "expected such as 4xstrix-halo,roce"}}) {
        const auto wrong = library.ParseCluster(words);
        ASSERT_FALSE(wrong.ok()) << words;
        EXPECT_EQ(wrong.error().code, ErrorCode::kUsage);
        EXPECT_NE(wrong.error().message.find(said), std::string::npos) << wrong.error().message;
    }
}

TEST(Cluster, CountsAndWiresAreTakenAsTheyAreWritten) {
    const Library library = OpenLibrary();
    for (const char* words :
         {"2xstrix-halo", "2 x strix halo", "2 X Strix Halo", "2\u00d7strix-halo",
          "2 \u00d7 strix-halo", "2*strix halo", "2x strix-halo, roce"}) {
        const auto cluster = library.ParseCluster(words);
        ASSERT_TRUE(cluster.ok()) << words << ": " << cluster.error().message;
        EXPECT_EQ(cluster->HostWords(), "2xstrix-halo") << words;
    }
    EXPECT_EQ(library.FindMachine("rpi5")->name, "raspberry-pi-5");
    EXPECT_EQ(library.FindMachine("Pi-4")->name, "raspberry-pi-4");
    for (const char* wire : {"infiniband", "50gbe", "200gbe", "400gbe", "ConnectX-7", "connectx-6",
                             "connectx-5", "rdma"}) {
        EXPECT_TRUE(library.FindWire(wire).ok()) << wire;
    }
    // An x that begins a name is no times sign.
    for (const char* words : {"8 xeon-8480", "8 x xeon-8480", "8xxeon-8480", "8 Xeon 8480:2"}) {
        const auto cluster = library.ParseCluster(words);
        ASSERT_TRUE(cluster.ok()) << words << ": " << cluster.error().message;
        EXPECT_EQ(cluster->hosts.size(), 8U) << words;
        EXPECT_TRUE(cluster->hosts[0].name.starts_with("xeon-8480")) << words;
    }
    const auto unknown = library.ParseCluster("8 xeon-99999");
    ASSERT_FALSE(unknown.ok());
    EXPECT_NE(unknown.error().message.find("'xeon-99999'"), std::string::npos);
    EXPECT_FALSE(library.ParseCluster("0 x strix-halo").ok());
    EXPECT_FALSE(library.ParseCluster("2 *").ok());
}

// As people write them.
TEST(Cluster, NamesAreTakenAsTheyAreWritten) {
    const Library library = OpenLibrary();
    for (const char* words : {"dgx-spark+2xrtx-3090,10gbe", "dgx-spark,2xrtx-3090,10gbe",
                              "DGX Spark + 2xRTX 3090, 10GbE", "dgx_spark,2xrtx3090 , 10gbe"}) {
        const auto cluster = library.ParseCluster(words);
        ASSERT_TRUE(cluster.ok()) << cluster.error().message;
        EXPECT_EQ(cluster->ranks(), 3) << words;
        EXPECT_EQ(cluster->HostWords(), "1xdgx-spark+2xrtx-3090") << words;
        EXPECT_EQ(cluster->wire.name, "10gbe") << words;
    }
    EXPECT_EQ(library.ParseCluster("rtx-3090:2,rtx-4090")->ranks(), 3);
}

// Other spellings of names in machines.json.
TEST(Cluster, MakersAndSizesOfMemoryAreLeftOut) {
    const Library library = OpenLibrary();
    for (const auto& [words, name] : std::initializer_list<std::pair<const char*, const char*>>{
             {"RTX 2080 Ti", "rtx-2080-ti"},
             {"NVIDIA GeForce RTX 4070 Ti SUPER", "rtx-4070-ti-super"},
             {"4090", "rtx-4090"},
             {"7900xtx", "rx-7900-xtx"},
             {"9070 XT", "rx-9070-xt"},
             {"780m", "radeon-780m"},
             {"AMD Radeon 890M Graphics", "radeon-890m"},
             {"A770", "arc-a770"},
             {"rtx-3060-12gb", "rtx-3060"},
             {"RTX 3080 12GB", "rtx-3080-12gb"},
             {"rtx-4060-ti-8gb", "rtx-4060-ti"},
             {"gtx-1060", "gtx-1060-6gb"},
             {"Tesla T4", "t4"},
             {"H100 SXM", "h100"},
             {"ryzen-ai-max-395", "strix-halo"},
             {"Ryzen 9950X", "ryzen-9-9950x"},
             {"Xeon Platinum 8480", "xeon-8480"}}) {
        const auto cluster = library.ParseCluster(words);
        ASSERT_TRUE(cluster.ok()) << words << ": " << cluster.error().message;
        EXPECT_EQ(cluster->hosts[0].name, name) << words;
        EXPECT_EQ(cluster->hosts.size(), 1U) << words;
    }
    EXPECT_FALSE(library.ParseCluster("rtx-3060-8gb").ok());
    EXPECT_FALSE(library.ParseCluster("h200-999gb").ok());
}

TEST(Cluster, ProcessorsAreKnownByTheirSeries) {
    struct Known {
        const char* words;
        int threads;
        double gigabytes_per_s;
    };
    const Library library = OpenLibrary();
    for (const Known& known : {Known{"ryzen-9-7950x", 16, 83.2},
                               Known{"Ryzen 9 7950X3D", 16, 83.2},
                               Known{"ryzen-7840hs", 8, 89.6},
                               Known{"AMD Ryzen 7 7840HS", 8, 89.6},
                               Known{"ryzen-9-7945hx", 16, 83.2},
                               Known{"ryzen-7-5800x", 8, 51.2},
                               Known{"ryzen-5-5600g", 6, 51.2},
                               Known{"ryzen-ai-9-hx-370", 12, 120},
                               Known{"core-i7-12700k", 12, 76.8},
                               Known{"i5-12400", 6, 76.8},
                               Known{"13th Gen Intel(R) Core(TM) i7-1360P", 12, 76.8},
                               Known{"i7-6700k", 4, 34.128},
                               Known{"core-ultra-155h", 14, 89.6},
                               Known{"Core Ultra 7 265K", 20, 102.4},
                               Known{"core-7-150u", 10, 83.2},
                               Known{"epyc-9374f", 32, 460.8},
                               Known{"EPYC 7742", 64, 204.8},
                               Known{"epyc-7443p", 24, 204.8},
                               Known{"xeon-gold-6248r", 20, 140.784},
                               Known{"xeon-e5-2680-v4", 14, 76.8},
                               Known{"Xeon w5-2465X", 16, 153.6},
                               Known{"threadripper-3970x", 32, 102.4},
                               Known{"Ryzen Threadripper PRO 5995WX", 64, 204.8},
                               Known{"graviton4", 96, 537.6}}) {
        const auto cluster = library.ParseCluster(known.words);
        ASSERT_TRUE(cluster.ok()) << known.words << ": " << cluster.error().message;
        const Machine& machine = cluster->hosts[0];
        EXPECT_TRUE(machine.is_processor()) << known.words;
        EXPECT_EQ(machine.threads, known.threads) << known.words;
        EXPECT_NEAR(machine.bandwidth.value, known.gigabytes_per_s * 1e9, 1e6) << known.words;
        EXPECT_EQ(machine.bandwidth.mark, Mark::kDataSheet);
        EXPECT_EQ(machine.compute.mark, Mark::kGuessed);
    }
    const auto pair = library.ParseCluster("2xryzen-9-7950x,epyc-9654,10gbe");
    ASSERT_TRUE(pair.ok()) << pair.error().message;
    EXPECT_EQ(pair->HostWords(), "2xryzen-9-7950x+1xepyc-9654");
    for (const char* words : {"ryzen", "core-i7", "epyc-12345", "i7-99", "xeon", "i9-99999",
                              "ryzen-5-5600100", "epyc-77429"}) {
        EXPECT_FALSE(library.ParseCluster(words).ok()) << words;
    }
}

// Each row of processors.json has figures of real machines, with any digits.
TEST(Cluster, AllSeriesHaveFigures) {
    const Library library = OpenLibrary();
    ASSERT_GT(library.SeriesPatterns().size(), 100U);
    for (std::string pattern : library.SeriesPatterns()) {
        for (const char digit : {'0', '5', '9'}) {
            std::string name;
            for (const char c : pattern) {
                const bool any = c == '#' || c == '?';
                name += any ? digit : c == '%' ? (digit == '5' ? '5' : '0') : c;
            }
            std::erase(name, '*');
            const auto machine = library.FindMachine(name);
            ASSERT_TRUE(machine.ok()) << machine.error().message;
            EXPECT_GE(machine->threads, 2) << name;
            EXPECT_LE(machine->threads, 256) << name;
        }
    }
}

// If a host's number of ranks is not a multiple of a tier's, its ranks count from its first one.
TEST(Cluster, LinksOfAHostBeginWithIt) {
    const Library library = OpenLibrary();
    for (const char* words : {"2xh100:6", "3xh100:3", "2xh100:5", "3xh100:7", "1xstrix-halo+2xh100",
                              "raspberry-pi-5+h100:8", "rtx-4090+rtx-4090:2", "h100:3+mi250x"}) {
        const auto cluster = library.ParseCluster(words);
        ASSERT_TRUE(cluster.ok()) << cluster.error().message;
        const TrainLinks train(*cluster);
        for (int low = 0; low < cluster->ranks(); ++low) {
            EXPECT_GT(cluster->Between(low, low).bytes_per_s, 1e15);
            for (int high = low + 1; high < cluster->ranks(); ++high) {
                const bool one_host = cluster->host_of(low) == cluster->host_of(high);
                const coll::Tier link = cluster->Between(low, high);
                EXPECT_GE(link.bytes_per_s, one_host ? 14e9 : 1e8) << words << low << ' ' << high;
                EXPECT_EQ(link.bytes_per_s == cluster->wire.bandwidth.value, !one_host)
                    << words << low << ' ' << high;
                EXPECT_EQ(train.HostOf(low), cluster->host_of(low));
                EXPECT_GE(train.Between(low, high).bytes_per_s, one_host ? 10.5e9 : 1e7);
            }
        }
    }
}

// Three devices, a tier of four: rank 3 is the second host's first.
TEST(Cluster, TiersMayJoinMoreThanThereAre) {
    const std::string more = R"(, "devices": 3, "tiers": {"host": {"ranks": 4, "bandwidth":
        {"is": "30 GB/s", "mark": "measured", "source": "x"}, "latency":
        {"is": "9 us", "mark": "measured", "source": "x"}}})";
    const auto machine = ParseMachine(FileWith(more), "box", "box.json");
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    ClusterSpec cluster;
    cluster.hosts = {*machine, *machine};
    cluster.wire = *OpenLibrary().FindWire("10gbe");
    EXPECT_EQ(cluster.Between(3, 5).bytes_per_s, 30e9);
    EXPECT_EQ(cluster.Between(2, 3).bytes_per_s, cluster.wire.bandwidth.value);
    EXPECT_EQ(TrainLinks(cluster).Between(3, 5).bytes_per_s, 30e9);
}

// Tensor ranks of two hosts sum at the speed of the host with most ranks, in any order of hosts.
TEST(Cluster, OrderOfHostsIsNoMatter) {
    const Library library = OpenLibrary();
    const auto one = library.ParseCluster("1xrtx-4090+1xrtx-3090:4,10gbe");
    const auto other = library.ParseCluster("1xrtx-3090:4+1xrtx-4090,10gbe");
    const auto three = library.ParseCluster("rtx-4090+rtx-3090:4+rtx-4090,10gbe");
    ASSERT_TRUE(one.ok() && other.ok() && three.ok());
    const coll::TierGroup a = one->GroupOf(0, 5), b = other->GroupOf(0, 5);
    EXPECT_EQ(a.near.bytes_per_s, 14e9);
    EXPECT_EQ(b.near.bytes_per_s, 14e9);
    EXPECT_EQ(a.far.bytes_per_s, b.far.bytes_per_s);
    EXPECT_EQ(three->GroupOf(0, 6).near.bytes_per_s, 14e9);
    EXPECT_GT(TrainLinks(*three).GroupOf(0, 6, 1).near.bytes_per_s, 10.5e9);
    // Among hosts with equally many, the slower one counts.
    for (const char* words : {"h100:2+rtx-3090:2", "rtx-3090:2+h100:2"}) {
        EXPECT_EQ(library.ParseCluster(words)->GroupOf(0, 4).near.bytes_per_s, 14e9) << words;
    }
    EXPECT_EQ(library.ParseCluster("2xh100")->GroupOf(6, 2).hosts, 1);
}

// Unlike machines are joined by the slowest of their own wires, in any order; a message says so.
TEST(Cluster, UnnamedWiresAreTheSlowest) {
    const Library library = OpenLibrary();
    for (const char* words :
         {"1xrtx-4090+1xstrix-halo", "1xstrix-halo+1xrtx-4090", "2xh100+1xrtx-4090+1xstrix-halo"}) {
        const auto cluster = library.ParseCluster(words);
        ASSERT_TRUE(cluster.ok()) << cluster.error().message;
        EXPECT_EQ(cluster->wire.name, "10gbe") << words;
        EXPECT_TRUE(cluster->wire_assumed) << words;
    }
    for (const char* words : {"2xh100", "1xrtx-4090+1xrtx-3090"}) {
        EXPECT_TRUE(library.ParseCluster(words)->wire_assumed) << words;
    }
    for (const char* words : {"h100", "2xh100,roce", "1xrtx-4090+1xstrix-halo,roce"}) {
        EXPECT_FALSE(library.ParseCluster(words)->wire_assumed) << words;
    }
    EXPECT_EQ(library.ParseCluster("1xrtx-4090+1xstrix-halo,roce")->wire.name, "roce");
}

}  // namespace
}  // namespace weft::plan
