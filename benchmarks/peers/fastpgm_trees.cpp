// Junction trees of FastPGM (Faster-BNI: Jiang et al. 2024): one is made and kept, and swept over for each case.
//
// Arguments: a network (XMLBIF), cases (index:value pairs, a line each), seconds after which no further case begins, and a
// file for the posteriors of the first five cases. Without FastPGM's smoothing, which moves probabilities of 0.
#define protected public
#include "fastpgm/inference/JunctionTree.h"
#undef protected
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <sstream>

#include "fastpgm/CustomNetwork.h"

static double processor_seconds() {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

int main(int count, char **arguments) {
    if (count != 5) return 2;
    CustomNetwork *network = new CustomNetwork(true);
    network->LoadXMLBIFFile(arguments[1], 1);
    for (int i = 0; i < network->num_nodes; ++i)
        dynamic_cast<DiscreteNode *>(network->FindNodePtrByIndex(i))->SetLaplaceSmooth(0);
    Dataset none(network);
    none.num_instance = 0;
    none.class_var_index = 0;
    double begin = processor_seconds();
    JunctionTree tree(0, network, &none);
    double making = processor_seconds() - begin;
    std::ifstream input(arguments[2]);
    FILE *output = fopen(arguments[4], "w");
    Timer timer;
    int done = 0;
    double seconds = 0, most = atof(arguments[3]);
    for (std::string line; seconds < most && std::getline(input, line); ++done) {
        std::stringstream words(line);
        DiscreteConfig seen;
        for (std::string word; words >> word;) {
            int index, value;
            if (sscanf(word.c_str(), "%d:%d", &index, &value) == 2) seen.insert({index, value});
        }
        begin = processor_seconds();
        tree.LoadDiscreteEvidence(seen, 1, &timer);
        for (Clique *clique : tree.tree->vector_clique_ptr_container) clique->p_table.Normalize();
        tree.MessagePassingUpdateJT(1, &timer);
        std::vector<double> found = tree.GetProbabilitiesAllNodes(seen);
        seconds += processor_seconds() - begin;
        for (size_t i = 0; done < 5 && i < found.size(); ++i) fprintf(output, "%.12g%c", found[i], i + 1 < found.size() ? ' ' : '\n');
        begin = processor_seconds();
        tree.ResetJunctionTree();
        seconds += processor_seconds() - begin;
    }
    fclose(output);
    fprintf(stderr, "{\"making\": %.6f, \"cases\": %d, \"case\": %.9f}\n", making, done, seconds / done);
    fflush(stderr);
    _exit(0);  // its destructors free some tables twice
}
