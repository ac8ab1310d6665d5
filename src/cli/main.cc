// weft: the command line. Subcommands parse flags and print; the work is done in engine/.
#include <CLI/CLI.hpp>

#include "cli/commands.h"

int main(int argc, char** argv) {
    CLI::App app("Weft runs a large language model across several ordinary machines.", "weft");
    app.require_subcommand(1);
    int status = 0;
    weft::cli::AddRun(app, status);
    weft::cli::AddWorker(app, status);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    return status;
}
