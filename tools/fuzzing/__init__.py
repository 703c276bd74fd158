"""Random problems, tables, files and kills through every part of oocbe, judged by brute force of its own."""
