// What programs with other libraries' clique trees read, and print: see clique_trees.py, which calls them.
//
// Standard input has float64 numbers: variables, their sizes; tables, and of each arity, scope (ascending) and cells, the
// first variable's value running fastest; the seconds after which no further case begins; cases, and of each how many
// variables it observes, and pairs of variable and value. Standard output gets a line for the tree, its processor seconds
// and, where that is known, cells; and a line a case, its processor seconds and the posteriors of all variables one after the other.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>
#include <vector>

struct Table {
    std::vector<size_t> scope;
    std::vector<double> cells;
};

typedef std::vector<std::pair<size_t, size_t> > Case;

struct Input {
    std::vector<size_t> sizes;
    std::vector<Table> tables;
    double limit;
    std::vector<Case> cases;
};

static double number() {
    double found = 0;
    if (std::fread(&found, sizeof found, 1, stdin) != 1) std::abort();
    return found;
}

static size_t index_of() { return (size_t)number(); }

static double seconds() { return (double)std::clock() / CLOCKS_PER_SEC; }

static Input read_input() {
    Input input;
    input.sizes.resize(index_of());
    for (size_t v = 0; v < input.sizes.size(); v++) input.sizes[v] = index_of();
    input.tables.resize(index_of());
    for (size_t t = 0; t < input.tables.size(); t++) {
        Table &table = input.tables[t];
        table.scope.resize(index_of());
        size_t cells = 1;
        for (size_t i = 0; i < table.scope.size(); i++) {
            table.scope[i] = index_of();
            cells *= input.sizes[table.scope[i]];
        }
        table.cells.resize(cells);
        if (std::fread(&table.cells[0], 8, cells, stdin) != cells) std::abort();
    }
    input.limit = number();
    input.cases.resize(index_of());
    for (size_t c = 0; c < input.cases.size(); c++) {
        input.cases[c].resize(index_of());
        for (size_t i = 0; i < input.cases[c].size(); i++) {
            input.cases[c][i].first = index_of();
            input.cases[c][i].second = index_of();
        }
    }
    return input;
}

static void print_line(double taken, const std::vector<double> &numbers) {
    std::printf("%.9f", taken);
    for (size_t i = 0; i < numbers.size(); i++) std::printf(" %.17g", numbers[i]);
    std::printf("\n");
    std::fflush(stdout);
}
